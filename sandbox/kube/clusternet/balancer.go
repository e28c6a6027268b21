package clusternet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
)

const (
	cleanup     = "service.kubernetes.io/load-balancer-cleanup"
	annotations = "service.beta.kubernetes.io/aws-load-balancer-"
	addresses   = "10.0.8." // of load balancers
)

// balancers stands for the cloud's service controller: a Service of type LoadBalancer gets one in the account and its name into the
// status; one that goes, or becomes another type, is kept by the finalizer until the account has it no more.
type balancers struct {
	client   kubernetes.Interface
	services corelisters.ServiceLister
	aws      string
	hosts    string
	named    func() // called when a name has come or gone
}

// balancer is one of them, as the emulator tells it.
type balancer struct {
	Name    string `json:"name"`
	DNS     string `json:"dns"`
	Service string `json:"service"`
	Active  bool   `json:"active"`
}

// run looks at all Services whenever one has changed, and again soon while one is on its way.
func (b *balancers) run(wake <-chan struct{}) {
	for {
		var again <-chan time.Time
		all, _ := b.services.List(labels.Everything())
		for _, s := range all {
			done, err := b.one(s)
			if err != nil {
				log.Printf("load balancer of %s/%s: %v", s.Namespace, s.Name, err)
			}
			if !done {
				again = time.After(200 * time.Millisecond)
			}
		}
		select {
		case <-wake:
		case <-again:
		}
	}
}

// one brings a Service a step further; true: nothing is left to do.
func (b *balancers) one(s *v1.Service) (bool, error) {
	wanted := s.Spec.Type == v1.ServiceTypeLoadBalancer && s.DeletionTimestamp == nil
	switch owned := slices.Contains(s.Finalizers, cleanup); {
	case !owned && !wanted:
		return true, nil
	case !owned:
		return false, b.patch(s, map[string]any{"metadata": map[string]any{"finalizers": append(slices.Clone(s.Finalizers), cleanup)}})
	case wanted:
		return b.make(s)
	default:
		return b.remove(s)
	}
}

func (b *balancers) make(s *v1.Service) (bool, error) {
	kind, scheme := "clb", "internet-facing"
	if s.Annotations[annotations+"type"] == "nlb" {
		kind = "nlb"
	}
	if s.Annotations[annotations+"internal"] == "true" {
		scheme = "internal"
	}
	tags := map[string]string{}
	for _, pair := range strings.Split(s.Annotations[annotations+"additional-resource-tags"], ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			tags[key] = value
		}
	}
	var made balancer
	ask := map[string]any{"namespace": s.Namespace, "service": s.Name, "type": kind, "scheme": scheme, "tags": tags}
	if err := b.ask(http.MethodPost, "loadbalancer", ask, &made); err != nil {
		return false, err
	}
	ingress := []v1.LoadBalancerIngress{{Hostname: made.DNS}}
	if len(s.Status.LoadBalancer.Ingress) != 1 || s.Status.LoadBalancer.Ingress[0].Hostname != made.DNS {
		if err := b.patch(s, map[string]any{"status": map[string]any{"loadBalancer": map[string]any{"ingress": ingress}}}, "status"); err != nil {
			return false, err
		}
	}
	if !made.Active { // it has a name, and nobody answers there yet
		return false, nil
	}
	return true, b.name(made.DNS, true)
}

func (b *balancers) remove(s *v1.Service) (bool, error) {
	var all []balancer
	if err := b.ask(http.MethodGet, "loadbalancers", nil, &all); err != nil {
		return false, err
	}
	for _, one := range all {
		if one.Service == s.Namespace+"/"+s.Name {
			return false, b.ask(http.MethodDelete, "loadbalancer?name="+url.QueryEscape(one.Name), nil, nil)
		}
	}
	for _, one := range s.Status.LoadBalancer.Ingress {
		if err := b.name(one.Hostname, false); err != nil {
			return false, err
		}
	}
	if s.DeletionTimestamp == nil {
		if err := b.patch(s, map[string]any{"status": map[string]any{"loadBalancer": nil}}, "status"); err != nil {
			return false, err
		}
	}
	left := slices.DeleteFunc(slices.Clone(s.Finalizers), func(one string) bool { return one == cleanup })
	return true, b.patch(s, map[string]any{"metadata": map[string]any{"finalizers": left}})
}

func (b *balancers) patch(s *v1.Service, change map[string]any, subresources ...string) error {
	body, err := json.Marshal(change)
	if err != nil {
		return err
	}
	_, err = b.client.CoreV1().Services(s.Namespace).Patch(context.Background(), s.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: "service-controller"}, subresources...)
	return err
}

// ask puts a question to the emulator's controls.
func (b *balancers) ask(method, path string, body, answer any) error {
	sent, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequest(method, b.aws+"/_sandbox/"+path, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	got, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer got.Body.Close()
	read, err := io.ReadAll(got.Body)
	if err == nil && got.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", method, path, got.Status, read)
	}
	if err != nil || answer == nil {
		return err
	}
	return json.Unmarshal(read, answer)
}

// name writes a load balancer's name into the file of names outside, or takes it out.
func (b *balancers) name(host string, there bool) error {
	names := readNames(b.hosts)
	if (names[host] != "") == there {
		return nil
	}
	if there {
		taken := map[string]bool{}
		for _, address := range names {
			taken[address] = true
		}
		for n := 1; n < 255 && names[host] == ""; n++ {
			if at := fmt.Sprint(addresses, n); !taken[at] {
				names[host] = at
			}
		}
	} else {
		delete(names, host)
	}
	text, err := json.MarshalIndent(names, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(b.hosts+".lb", text, 0o644); err != nil {
		return err
	}
	if err := os.Rename(b.hosts+".lb", b.hosts); err != nil {
		return err
	}
	b.named()
	return nil
}
