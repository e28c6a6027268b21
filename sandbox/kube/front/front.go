// Package front is the world's edge: it ends TLS for every registry and chart host by the name that the client asks for, with
// certificates of the sandbox's own CA made on the spot, and answers names as the resolver of a VPC does.
package front

import (
	"crypto/tls"
	"encoding/json"
	"flag"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"nemo-sandbox/clusternet"
)

// host is what stands behind one name.
type host struct {
	Proxy string            `json:"proxy,omitempty"` // http address of the server behind
	Paths map[string]string `json:"paths,omitempty"` // path prefix -> another server behind
	Files string            `json:"files,omitempty"` // folder that is served instead; it holds one folder a host
	Only  []string          `json:"only"`            // repositories that this registry has; null: all
}

// Main serves until it is killed.
func Main() {
	listen := flag.String("listen", "10.0.0.1:443", "address of the TLS server")
	plain := flag.String("plain", "", "unix socket on which the same hosts are served without TLS, for the way in from outside")
	resolver := flag.String("dns", "10.0.0.2:53", "address of the resolver, UDP and TCP")
	names := flag.String("names", "hosts.json", "JSON file, name -> address")
	config := flag.String("config", "front.json", "JSON file, host -> what stands behind it")
	ca := flag.String("ca", "ca", "path of the CA's certificate and key, without .crt and .key")
	flag.Parse()

	issuer, err := loadIssuer(*ca)
	if err != nil {
		log.Fatalf("the sandbox's CA: %v", err)
	}
	f := &front{path: *config}
	if err := f.load(); err != nil {
		log.Fatal(err)
	}
	clusternet.ServeOutside(*resolver, *names)
	server := &http.Server{Handler: f, ReadHeaderTimeout: 30 * time.Second, TLSConfig: &tls.Config{GetCertificate: issuer.certificate, MinVersion: tls.VersionTLS12}}
	if *plain != "" {
		_ = os.Remove(*plain)
		l, err := net.Listen("unix", *plain)
		if err != nil {
			log.Fatal(err)
		}
		go func() { log.Fatal(server.Serve(l)) }()
	}
	server.Addr = *listen
	log.Fatal(server.ListenAndServeTLS("", "")) // certificates come from GetCertificate
}

// front looks up the host of each request.
type front struct {
	path  string
	hosts map[string]host
}

func (f *front) load() error {
	b, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, &f.hosts)
}

func (f *front) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.Host
	if h, _, err := net.SplitHostPort(name); err == nil {
		name = h
	}
	h, ok := f.hosts[name]
	switch {
	case !ok:
		http.Error(w, "the sandbox has no host "+name, http.StatusMisdirectedRequest)
	case h.Files != "":
		http.ServeFile(w, r, filepath.Join(h.Files, name, filepath.FromSlash(filepath.Clean("/"+r.URL.Path))))
	case !h.has(r.URL.Path):
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte(`{"errors":[{"code":"NAME_UNKNOWN","message":"repository name not known to registry"}]}`))
	default:
		h.pass(w, r, name)
	}
}

// has tells whether the path's repository is one of this registry's.
func (h host) has(path string) bool {
	repository, ok := strings.CutPrefix(path, "/v2/")
	if !ok || repository == "" || h.Only == nil {
		return true
	}
	for _, known := range h.Only {
		if strings.HasPrefix(repository, known+"/") {
			return true
		}
	}
	return false
}

// behind is the server that gets the path: the longest prefix wins.
func (h host) behind(path string) string {
	prefixes := make([]string, 0, len(h.Paths))
	for p := range h.Paths {
		prefixes = append(prefixes, p)
	}
	sort.Slice(prefixes, func(i, j int) bool { return len(prefixes[i]) > len(prefixes[j]) })
	for _, p := range prefixes {
		if strings.HasPrefix(path, p) {
			return h.Paths[p]
		}
	}
	return h.Proxy
}

// pass hands the request on. The server behind sees the name that the client used, so that the addresses in its answers are
// ones that the client can follow.
func (h host) pass(w http.ResponseWriter, r *http.Request, name string) {
	to, err := url.Parse(h.behind(r.URL.Path))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	p := httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(to)
			p.Out.Host = name
			p.Out.Header.Set("X-Forwarded-Proto", "https")
			p.Out.Header.Set("X-Forwarded-Host", name)
			if path := p.Out.URL.Path; strings.HasPrefix(path, "/auth/token") || strings.HasPrefix(path, "/proxy_auth") {
				p.Out.URL.Path = "/token" // registries name their token service's path as they like
			}
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			log.Printf("%s%s: %v", name, r.URL.Path, err)
			http.Error(w, "the part of the sandbox behind "+name+" does not answer: "+err.Error(), http.StatusBadGateway)
		},
	}
	p.ServeHTTP(w, r)
}

var transport = &http.Transport{MaxIdleConnsPerHost: 64, IdleConnTimeout: 30 * time.Second, DisableCompression: true}
