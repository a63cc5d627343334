// Package testing starts setpoint for tests that want a server of CustomResourceDefinitions alone.
package testing

import (
	"fmt"
	"net"
	"os"

	"github.com/spf13/pflag"

	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/setpointserver"
)

func init() {
	// Several servers of one process share its logs.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
}

// TearDownFunc stops a server.
type TearDownFunc func()

// TestServerInstanceOptions is empty.
type TestServerInstanceOptions struct{}

// TestServer is a server that runs.
type TestServer struct {
	ClientConfig *rest.Config
	ServerOpts   *options.CustomResourceDefinitionsServerOptions
	TearDownFn   TearDownFunc
	TmpDir       string
	// CompletedConfig is for tests that read the storage themselves.
	CompletedConfig apiserver.CompletedConfig
}

// Logger is a test.
type Logger interface {
	Errorf(format string, args ...interface{})
	Fatalf(format string, args ...interface{})
	Logf(format string, args ...interface{})
}

// NewDefaultTestServerOptions gives the usual options.
func NewDefaultTestServerOptions() *TestServerInstanceOptions {
	return &TestServerInstanceOptions{}
}

// StartTestServerOrDie ends the test if the server does not start.
func StartTestServerOrDie(t Logger, instance *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) *TestServer {
	server, err := StartTestServer(t, instance, flags, storage)
	if err != nil {
		t.Fatalf("the server does not start: %v", err)
	}
	return &server
}

// StartTestServer starts a server with the flags of a server of definitions.
func StartTestServer(t Logger, _ *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) (server TestServer, err error) {
	folder, err := os.MkdirTemp("", "setpoint-integration")
	if err != nil {
		return server, err
	}
	defer func() {
		if err != nil {
			os.RemoveAll(folder)
		}
	}()
	registry, _, err := setpointserver.NewRegistry()
	if err != nil {
		return server, err
	}
	s := options.NewCustomResourceDefinitionsServerOptions(os.Stdout, os.Stderr)
	s.ServerRunOptions.ComponentGlobalsRegistry = registry
	set := pflag.NewFlagSet("server", pflag.ContinueOnError)
	s.AddFlags(set)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return server, err
	}
	port := listener.Addr().(*net.TCPAddr).Port
	serving := s.RecommendedOptions.SecureServing
	serving.Listener, serving.BindPort = listener, port
	serving.ServerCert.CertDirectory = folder
	serving.ExternalAddress = net.IPv4(127, 0, 0, 1)
	if storage != nil {
		s.RecommendedOptions.Etcd.StorageConfig = *storage
	}
	if err := set.Parse(flags); err != nil {
		return server, err
	}
	for _, step := range []func() error{registry.Set, s.Complete, s.Validate} {
		if err := step(); err != nil {
			return server, err
		}
	}
	config, err := s.Config()
	listener.Close()
	if err != nil {
		return server, err
	}

	line := append(kept(flags),
		fmt.Sprintf("--secure-port=%d", port),
		"--authorization-mode=AlwaysAllow",
		"--runtime-config=api/all=true",
		"--service-cluster-ip-range=10.0.0.0/16",
	)
	line = append(line, setpointserver.Gates(utilfeature.DefaultMutableFeatureGate, false)...)
	clients, stop, err := setpointserver.Start(t, line)
	if err != nil {
		return server, err
	}
	return TestServer{
		ClientConfig:    clients,
		ServerOpts:      s,
		TmpDir:          folder,
		CompletedConfig: config.Complete(),
		TearDownFn: func() {
			stop()
			os.RemoveAll(folder)
		},
	}, nil
}

// kept gives the flags that a whole API server has, too: it asks no other server who someone is.
func kept(flags []string) []string {
	var kept []string
	for i := 0; i < len(flags); i++ {
		switch flag := flags[i]; flag {
		case "--authentication-skip-lookup":
		case "--authentication-kubeconfig", "--authorization-kubeconfig", "--kubeconfig":
			i++
		default:
			kept = append(kept, flag)
		}
	}
	return setpointserver.Without(kept, setpointserver.Versions...)
}
