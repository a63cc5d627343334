// Package testing starts setpoint for tests that want a kube-apiserver with flags.
package testing

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	genericfeatures "k8s.io/apiserver/pkg/features"
	serveroptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storageversion"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/featuregate"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/setpointserver"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/test/utils/ktesting"
)

func init() {
	// Several servers of one process share its logs.
	logsapi.ReapplyHandling = logsapi.ReapplyHandlingIgnoreUnchanged
}

// issuer is what the tests expect in tokens.
const issuer = "https://foo.bar.example.com"

// TearDownFunc stops a server.
type TearDownFunc func()

// TestServerInstanceOptions are what flags do not say.
type TestServerInstanceOptions struct {
	// SkipHealthzCheck has no effect: the server says when it serves.
	SkipHealthzCheck bool
	// EnableCertAuth trusts client certificates, and those of a front proxy.
	EnableCertAuth bool
	// StorageVersionWrapFunc is part of another program's inside. It is not called.
	StorageVersionWrapFunc func(storageversion.Manager) storageversion.Manager
	// ProxyCA is the front proxy's CA; nil makes one.
	ProxyCA *ProxyCA
	// BinaryVersion has no effect.
	BinaryVersion string
	// RequestTimeout is `--request-timeout`, unless it is zero.
	RequestTimeout time.Duration
}

// TestServer is a server that runs.
type TestServer struct {
	ClientConfig      *restclient.Config
	ServerOpts        *options.ServerRunOptions
	TearDownFn        TearDownFunc
	TmpDir            string
	EtcdClient        *clientv3.Client
	EtcdStoragePrefix string
}

// Logger is a test.
type Logger interface {
	Helper()
	Errorf(format string, args ...interface{})
	Fatalf(format string, args ...interface{})
	Logf(format string, args ...interface{})
	Cleanup(func())
}

// ProxyCA is a certificate authority.
type ProxyCA struct {
	ProxySigningCert *x509.Certificate
	ProxySigningKey  *rsa.PrivateKey
}

// NewDefaultTestServerOptions gives the usual options.
func NewDefaultTestServerOptions() *TestServerInstanceOptions {
	return &TestServerInstanceOptions{EnableCertAuth: true}
}

// StartTestServerOrDie ends the test if the server does not start.
func StartTestServerOrDie(t testing.TB, instance *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) *TestServer {
	t.Helper()
	server, err := StartTestServer(t, instance, flags, storage)
	if err != nil {
		t.Fatalf("the server does not start: %v", err)
	}
	return &server
}

// StartTestServer starts a server with kube-apiserver's flags.
func StartTestServer(t ktesting.TB, instance *TestServerInstanceOptions, flags []string, storage *storagebackend.Config) (server TestServer, err error) {
	if instance == nil {
		instance = NewDefaultTestServerOptions()
	}
	folder, err := os.MkdirTemp("", "setpoint-integration")
	if err != nil {
		return server, err
	}
	stop := func() {}
	defer func() {
		if err != nil {
			stop()
			os.RemoveAll(folder)
		}
	}()

	s, gates, err := newOptions()
	if err != nil {
		return server, err
	}
	set := allFlags(s)
	s.SecureServing.BindPort, err = freePort()
	if err != nil {
		return server, err
	}
	s.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	s.SecureServing.ExternalAddress = s.SecureServing.BindAddress
	s.SecureServing.ServerCert.CertDirectory = folder
	s.ServiceClusterIPRanges = "10.0.0.0/16"
	s.Etcd.StorageConfig = *storage
	var own []string
	if instance.EnableCertAuth {
		if own, err = certAuth(s, folder, instance.ProxyCA); err != nil {
			return server, err
		}
	}
	if err := set.Parse(flags); err != nil {
		return server, err
	}
	if err := s.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return server, err
	}
	adopt(t, gates)
	certificate := filepath.Join(folder, s.SecureServing.ServerCert.PairName+".crt")
	if instance.EnableCertAuth && utilfeature.DefaultFeatureGate.Enabled(genericfeatures.UnknownVersionInteroperabilityProxy) {
		s.PeerCAFile = certificate
		if err := common(certificate); err != nil {
			return server, err
		}
	}
	key, err := signingKey(folder)
	if err != nil {
		return server, err
	}
	s.ServiceAccountSigningKeyFile = key
	s.Authentication.ServiceAccounts.Issuers = []string{issuer}
	s.Authentication.ServiceAccounts.KeyFiles = []string{key}
	completed, err := s.Complete(context.Background())
	if err != nil {
		return server, err
	}
	for _, err := range completed.Validate() {
		return server, err
	}

	line := append(setpointserver.Without(flags, setpointserver.Versions...), own...)
	line = append(line, setpointserver.FlagsOf(set, allFlags(options.NewServerRunOptions()), "etcd-servers", "runtime-config")...)
	line = append(line,
		fmt.Sprintf("--secure-port=%d", s.SecureServing.BindPort),
		"--etcd-servers="+strings.Join(storage.Transport.ServerList, ","),
	)
	if !set.Changed("authorization-mode") && s.Authorization.AuthorizationConfigurationFile == "" {
		line = append(line, "--authorization-mode="+strings.Join(s.Authorization.Modes, ","))
	}
	if versions := s.APIEnablement.RuntimeConfig; !set.Changed("runtime-config") && len(versions) > 0 {
		line = append(line, "--runtime-config="+versions.String())
	}
	if instance.RequestTimeout > 0 {
		line = append(line, "--request-timeout="+instance.RequestTimeout.String())
	}
	_, missing := os.Stat(certificate)
	presents := missing == nil && !set.Changed("tls-cert-file")
	if presents {
		line = append(line, "--tls-cert-file="+certificate, "--tls-private-key-file="+strings.TrimSuffix(certificate, "crt")+"key")
	}
	line = append(line, setpointserver.Gates(utilfeature.DefaultMutableFeatureGate, s.GenericServerRunOptions.EmulationForwardCompatible)...)
	config, stopServer, err := setpointserver.Start(t, line)
	if err != nil {
		return server, err
	}
	stop = stopServer
	if presents {
		setpointserver.Trust(config, certificate)
	}

	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return server, err
	}
	hasDefault := func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		return err == nil, nil
	}
	if err := wait.PollUntilContextTimeout(context.Background(), 100*time.Millisecond, time.Minute, true, hasDefault); err != nil {
		return server, fmt.Errorf("there is no namespace default: %w", err)
	}
	etcd, _, err := GetEtcdClients(storage.Transport)
	if err != nil {
		return server, err
	}
	return TestServer{
		ClientConfig:      config,
		ServerOpts:        s,
		TmpDir:            folder,
		EtcdClient:        etcd,
		EtcdStoragePrefix: storage.Prefix,
		TearDownFn: func() {
			stopServer()
			etcd.Close()
			os.RemoveAll(folder)
		},
	}, nil
}

// GetEtcdClients gives clients of an etcd.
func GetEtcdClients(config storagebackend.TransportConfig) (*clientv3.Client, clientv3.KV, error) {
	settings := clientv3.Config{
		Endpoints:   config.ServerList,
		DialTimeout: 20 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithBlock()},
	}
	// A configuration for TLS, even an empty one, changes how a socket's path is dialled.
	if config.CertFile != "" || config.KeyFile != "" || config.TrustedCAFile != "" {
		files := transport.TLSInfo{CertFile: config.CertFile, KeyFile: config.KeyFile, TrustedCAFile: config.TrustedCAFile}
		var err error
		if settings.TLS, err = files.ClientConfig(); err != nil {
			return nil, nil, err
		}
	}
	client, err := clientv3.New(settings)
	if err != nil {
		return nil, nil, err
	}
	return client, clientv3.NewKV(client), nil
}

// pair is the certificate and the key of the first server whose peers must trust it.
var pair [2][]byte

// common gives servers of this process the certificate of the first one. The original has it among
// its files.
func common(certificate string) error {
	files := [2]string{certificate, strings.TrimSuffix(certificate, "crt") + "key"}
	if pair[0] == nil {
		var err error
		names := []string{"kubernetes.default.svc", "kubernetes.default", "kubernetes", "localhost"}
		pair[0], pair[1], err = cert.GenerateSelfSignedCertKey("127.0.0.1", nil, names)
		if err != nil {
			return err
		}
	}
	for i, file := range files {
		if err := os.WriteFile(file, pair[i], 0o600); err != nil {
			return err
		}
	}
	return nil
}

// newOptions gives options with feature gates of their own.
func newOptions() (*options.ServerRunOptions, featuregate.MutableVersionedFeatureGate, error) {
	registry, gates, err := setpointserver.NewRegistry()
	if err != nil {
		return nil, nil, err
	}
	s := options.NewServerRunOptions()
	s.GenericServerRunOptions.ComponentGlobalsRegistry = registry
	return s, gates, nil
}

// allFlags gives the flags that set the options.
func allFlags(s *options.ServerRunOptions) *pflag.FlagSet {
	all := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, set := range s.Flags().FlagSets {
		all.AddFlagSet(set)
	}
	return all
}

// adopt sets the gates that a command line changed for the test's own process, too, and the version
// that they emulate.
func adopt(t ktesting.TB, gates featuregate.MutableVersionedFeatureGate) {
	own := utilfeature.DefaultMutableFeatureGate
	emulated, compatible := gates.EmulationVersion(), gates.MinCompatibilityVersion()
	if !emulated.EqualTo(own.EmulationVersion()) || !compatible.EqualTo(own.MinCompatibilityVersion()) {
		featuregatetesting.SetFeatureGateVersionsDuringTest(t, own, emulated, compatible)
	}
	changed := map[featuregate.Feature]bool{}
	for name := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if gates.Enabled(name) != utilfeature.DefaultFeatureGate.Enabled(name) {
			changed[name] = gates.Enabled(name)
		}
	}
	if len(changed) > 0 {
		featuregatetesting.SetFeatureGatesDuringTest(t, utilfeature.DefaultFeatureGate, changed)
	}
}

// certAuth makes the CAs of clients and of a front proxy, and gives the flags that the options do
// not show.
func certAuth(s *options.ServerRunOptions, folder string, proxy *ProxyCA) ([]string, error) {
	clients, _, err := newCA("client-ca")
	if err != nil {
		return nil, err
	}
	var proxyCert *x509.Certificate
	var proxyKey crypto.Signer
	if proxy != nil {
		proxyCert, proxyKey = proxy.ProxySigningCert, proxy.ProxySigningKey
	} else if proxyCert, proxyKey, err = newCA("front-proxy-ca"); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	cert, err := sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "misty"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, proxyCert, &key.PublicKey, proxyKey)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	files := map[string]*pem.Block{
		"client-ca.crt": {Type: "CERTIFICATE", Bytes: clients.Raw},
		"proxy-ca.crt":  {Type: "CERTIFICATE", Bytes: proxyCert.Raw},
		"misty-crt.crt": {Type: "CERTIFICATE", Bytes: cert.Raw},
		"misty-crt.key": {Type: "PRIVATE KEY", Bytes: der},
	}
	for name, block := range files {
		if err := os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return nil, err
		}
	}
	s.Authentication.ClientCert.ClientCA = filepath.Join(folder, "client-ca.crt")
	s.ProxyClientCertFile = filepath.Join(folder, "misty-crt.crt")
	s.ProxyClientKeyFile = filepath.Join(folder, "misty-crt.key")
	headers := serveroptions.NewDelegatingAuthenticationOptions().RequestHeader
	return []string{
		"--requestheader-client-ca-file=" + filepath.Join(folder, "proxy-ca.crt"),
		"--requestheader-allowed-names=ash,misty,brock",
		"--requestheader-username-headers=" + strings.Join(headers.UsernameHeaders, ","),
		"--requestheader-group-headers=" + strings.Join(headers.GroupHeaders, ","),
		"--requestheader-extra-headers-prefix=" + strings.Join(headers.ExtraHeaderPrefixes, ","),
	}, nil
}

func newCA(name string) (*x509.Certificate, crypto.Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		Subject:  pkix.Name{CommonName: name},
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IsCA:     true,
	}
	cert, err := sign(template, template, &key.PublicKey, key)
	return cert, key, err
}

func sign(template, parent *x509.Certificate, public any, key crypto.Signer) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial.Add(serial, big.NewInt(1))
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(24 * time.Hour)
	template.BasicConstraintsValid = true
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// signingKey makes a key for tokens of service accounts.
func signingKey(folder string) (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return "", err
	}
	file := filepath.Join(folder, "service-accounts.key")
	return file, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
