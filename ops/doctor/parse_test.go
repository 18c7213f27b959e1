package doctor

import (
	"path"
	"reflect"
	"strings"
	"testing"
)

const procStatus = "Name:\tjava\nUmask:\t0022\nPid:\t123\nPPid:\t1\nUid:\t1000\t1001\t1002\t1003\nGid:\t5\t6\t7\t8\nGroups:\t10 4294967295 \nCapEff:\t0000003fffffffff\n"

func TestParseProcess(t *testing.T) {
	p, err := parseProcess(procStatus)
	want := &Process{PID: 123, UID: 1001, GID: 6, Groups: []uint32{10, 4294967295}, Capabilities: 0x3fffffffff}
	if err != nil || !reflect.DeepEqual(p, want) {
		t.Errorf("%+v, %v", p, err)
	}
	for _, bad := range []string{"", "Pid:\t1\n", strings.Replace(procStatus, "1001", "-1", 1), strings.Replace(procStatus, "3f", "xx", 1),
		strings.Replace(procStatus, "4294967295", "4294967296", 1), strings.Replace(procStatus, "Gid", "gid", 1)} {
		if p, err := parseProcess(bad); err == nil {
			t.Errorf("%q gave %+v", bad, p)
		}
	}
}

func FuzzParseProcess(f *testing.F) {
	f.Add(procStatus)
	f.Add("Pid:\nUid: 1 1 1\nCapEff:")
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := parseProcess(text); (p == nil) == (err == nil) {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

func TestParseBean(t *testing.T) {
	var a Agent
	ok, err := parseBean([]byte(`{"beans":[{"name":"penstock:type=Agent","State":"woven","Connected":true,"Missing":[],"GateWaits":3}]}`), &a)
	if !ok || err != nil || a.State != "woven" || !a.Connected {
		t.Errorf("%v, %v: %+v", ok, err, a)
	}
	if ok, err := parseBean([]byte(`{"beans":[]}`), &a); ok || err != nil {
		t.Errorf("no bean: %v, %v", ok, err)
	}
	for _, bad := range []string{"", "<html>", `{"beans":[3]}`, `{"beans":[{"State":4}]}`} {
		if _, err := parseBean([]byte(bad), &a); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

func FuzzParseBean(f *testing.F) {
	f.Add([]byte(`{"beans":[{"State":"woven"}]}`))
	f.Add([]byte(`{"beans":[null]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var a Agent
		if ok, err := parseBean(body, &a); ok && err != nil {
			t.Error("both a bean and an error")
		}
	})
}

func TestParseConf(t *testing.T) {
	for _, text := range []string{
		`{"properties":[{"key":"a.b","value":"true","isFinal":false,"resource":"x"},{"key":"c","value":""}]}`,
		"\n<?xml version=\"1.0\"?><configuration><property><name>a.b</name><value>true</value><final>false</final></property><property><name>c</name><value></value></property></configuration>",
	} {
		conf, err := parseConf([]byte(text))
		if err != nil || conf["a.b"] != "true" || len(conf) != 2 {
			t.Errorf("%v, %v", conf, err)
		}
	}
	for _, bad := range []string{"", "{}", "<configuration></configuration>", "<html>", `{"properties":[`} {
		if conf, err := parseConf([]byte(bad)); err == nil {
			t.Errorf("%q gave %v", bad, conf)
		}
	}
}

func FuzzParseConf(f *testing.F) {
	f.Add([]byte(`{"properties":[{"key":"a","value":"b"}]}`))
	f.Add([]byte("<configuration><property><name>a</name><value>b</value></property></configuration>"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if conf, err := parseConf(body); err == nil && len(conf) == 0 {
			t.Error("neither properties nor an error")
		}
	})
}

func TestParseDataDirs(t *testing.T) {
	got := parseDataDirs(" [DISK]file:///data/1/dfs, /data/2/dfs/ ,[SSD] file:/data/3,relative,hdfs://x/y,[broken,")
	if want := []string{"/data/1/dfs", "/data/2/dfs", "/data/3"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
}

func FuzzParseDataDirs(f *testing.F) {
	f.Add("[DISK]file:///data/1/dfs,/data/2")
	f.Add("file://%zz,[,]")
	f.Fuzz(func(t *testing.T, text string) {
		for _, d := range parseDataDirs(text) {
			if !path.IsAbs(d) || path.Clean(d) != d {
				t.Errorf("%q: %q", text, d)
			}
		}
	})
}

func TestParseVersions(t *testing.T) {
	for text, want := range map[string][2]int{"6.18.5+deb13-cloud": {6, 18}, "5.6": {5, 6}, "3.4.2, rabc": {3, 4}, "4.19-rc1": {4, 19}} {
		if major, minor, err := parseRelease(text); err != nil || [2]int{major, minor} != want {
			t.Errorf("%s: %d.%d, %v", text, major, minor, err)
		}
	}
	for _, bad := range []string{"", "6", "v6.5", "6-5", "6..5", "99999999999999999999.1"} {
		if major, minor, err := parseRelease(bad); err == nil {
			t.Errorf("%q gave %d.%d", bad, major, minor)
		}
	}
	for text, want := range map[string]int{"17": 17, "1.8": 8, "25": 25} {
		if n, err := parseJava(text); err != nil || n != want {
			t.Errorf("%s: %d, %v", text, n, err)
		}
	}
	for _, bad := range []string{"", "1.", "-3", "17.0.1", "x"} {
		if n, err := parseJava(bad); err == nil {
			t.Errorf("%q gave %d", bad, n)
		}
	}
}

func FuzzParseRelease(f *testing.F) {
	f.Add("6.18.5+deb13")
	f.Add("6")
	f.Fuzz(func(t *testing.T, text string) {
		if major, minor, err := parseRelease(text); err == nil && (major < 0 || minor < 0) {
			t.Errorf("%q: %d.%d", text, major, minor)
		}
		_, _ = parseJava(text)
	})
}
