// The sidecar of llm-d that has pictures encoded before an engine answers: its real package, v0.7.1, with a main of our own.
// Its own go.mod names a module that no proxy has (llm-d-kv-cache), which the sidecar has no use for: absent/ stands in for it.
package main

import (
	"os"

	"github.com/spf13/pflag"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/llm-d/llm-d-inference-scheduler/pkg/sidecar/proxy"
)

func main() {
	options := proxy.NewOptions()
	options.AddFlags(pflag.CommandLine)
	pflag.Parse()
	logger := options.NewLogger()
	log.SetLogger(logger)
	if err := run(options); err != nil {
		logger.Error(err, "the sidecar ended")
		os.Exit(1)
	}
}

func run(options *proxy.Options) error {
	if err := options.Complete(); err != nil {
		return err
	}
	if err := options.Validate(); err != nil {
		return err
	}
	return proxy.NewProxy(options.Config).Start(ctrl.SetupSignalHandler())
}
