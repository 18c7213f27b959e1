package store

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestPack(t *testing.T) {
	v := Version{Number: 3, Text: []byte("default: 1\n"), Weights: map[string]int{"a": 2}, Author: "alice", Time: time.UnixMilli(5).UTC()}
	data, err := pack(v, 42, "token")
	if err != nil {
		t.Fatal(err)
	}
	got, epoch, token, err := unpack(data)
	if err != nil || got.Number != 3 || string(got.Text) != "default: 1\n" || epoch != 42 || token != "token" {
		t.Errorf("%+v, %d, %s, %v", got, epoch, token, err)
	}
	if !bytes.HasPrefix(data, []byte("penstock-epoch 42 token\n")) {
		t.Errorf("it begins with %.40q", data)
	}
	for i := range data {
		if _, _, _, err := unpack(data[:i]); err == nil {
			t.Fatalf("the first %d bytes are accepted", i)
		}
	}
	if _, err := pack(Version{Number: 1, Text: []byte{0xff}}, 1, "t"); err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("%v", err)
	}
}

// FuzzUnpack: any data in a znode is a complete version or an error.
func FuzzUnpack(f *testing.F) {
	data, err := pack(Version{Number: 1, Text: []byte("default: 1\n")}, 7, "t")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add(data[:20])
	f.Add([]byte("penstock-epoch 1 t\n"))
	f.Add(bytes.Replace(data, []byte(" 7 "), []byte(" x "), 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		v, epoch, token, err := unpack(data)
		if err != nil {
			return
		}
		if err := v.Check(); err != nil {
			t.Errorf("%+v is accepted: %v", v, err)
		}
		again, err := pack(v, epoch, token)
		if err != nil {
			t.Fatal(err)
		}
		if w, e, _, err := unpack(again); err != nil || w.Number != v.Number || e != epoch {
			t.Errorf("%+v, %d, %v", w, e, err)
		}
	})
}
