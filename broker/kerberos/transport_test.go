package kerberos

import (
	"net/http"
	"testing"
)

// TestProxied checks that the answers of applications are recognised, also if the ResourceManager's URL has a path.
func TestProxied(t *testing.T) {
	for url, want := range map[string]string{
		"http://rm:8088/ws/v1/cluster/apps":                    "",
		"http://rm:8088/proxy/application_1_1/ws/v1/mapreduce": "application_1_1",
		"https://gate/rm/proxy/application_1_1/api/v1":         "application_1_1",
	} {
		r, err := http.NewRequest(http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := proxied(r); got != want {
			t.Errorf("%s is of application %q, want %q", url, got, want)
		}
	}
}
