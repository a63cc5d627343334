// Package framework, beside the files of the original: starts setpoint for tests that change the
// options of a kube-apiserver by code.
package framework

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	client "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/setpointserver"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/controlplane"
)

const issuer = "https://foo.bar.example.com"

// TestServerSetup changes a server before it starts.
type TestServerSetup struct {
	// ModifyServerRunOptions changes what the flags say.
	ModifyServerRunOptions func(*options.ServerRunOptions)
	// ModifyServerConfig changes the inside of another program. Its authenticator and authorizer
	// are asked as webhooks; the rest is left out.
	ModifyServerConfig func(*controlplane.Config)
}

// TearDownFunc stops a server.
type TearDownFunc func()

// StartTestServer starts a server.
func StartTestServer(ctx context.Context, t testing.TB, setup TestServerSetup) (client.Interface, *rest.Config, TearDownFunc) {
	t.Helper()
	folder, err := os.MkdirTemp("", "setpoint-integration")
	if err != nil {
		t.Fatal(err)
	}
	fail := func(err error) {
		if err != nil {
			os.RemoveAll(folder)
			t.Fatal(err)
		}
	}
	files := []string{"client-ca", "proxy-ca"}
	for i, name := range files {
		files[i] = filepath.Join(folder, name+".crt")
		fail(writeCA(name, files[i]))
	}
	key := filepath.Join(folder, "service-accounts.key")
	fail(writeKey(key))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	fail(err)
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()

	registry, _, err := setpointserver.NewRegistry()
	fail(err)
	s := options.NewServerRunOptions()
	s.GenericServerRunOptions.ComponentGlobalsRegistry = registry
	s.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	s.SecureServing.BindPort = port
	s.SecureServing.ServerCert.CertDirectory = folder
	s.ServiceAccountSigningKeyFile = key
	s.Etcd.StorageConfig.Prefix = "/" + uuid.New().String() + "/registry"
	s.Etcd.StorageConfig.Transport.ServerList = []string{GetEtcdURL()}
	s.ServiceClusterIPRanges = "10.0.0.0/24"
	headers := s.Authentication.RequestHeader
	headers.UsernameHeaders = []string{"X-Remote-User"}
	headers.GroupHeaders = []string{"X-Remote-Group"}
	headers.ExtraHeaderPrefixes = []string{"X-Remote-Extra-"}
	headers.AllowedNames = []string{"kube-aggregator"}
	headers.ClientCAFile = files[1]
	s.Authentication.ClientCert.ClientCA = files[0]
	s.Authentication.APIAudiences = []string{issuer}
	s.Authentication.ServiceAccounts.Issuers = []string{issuer}
	s.Authentication.ServiceAccounts.KeyFiles = []string{key}
	s.Authorization.Modes = []string{"Node", "RBAC"}
	if setup.ModifyServerRunOptions != nil {
		setup.ModifyServerRunOptions(s)
	}
	asked := newHooks()
	if setup.ModifyServerConfig != nil {
		asked.collect(t, s, setup.ModifyServerConfig)
	}
	// A signer is asked by the program only, not by the options, too.
	accounts := s.Authentication.ServiceAccounts
	signer, keys := s.ServiceAccountSigningEndpoint, accounts.KeyFiles
	if signer != "" {
		s.ServiceAccountSigningEndpoint, s.ServiceAccountSigningKeyFile = "", key
		accounts.KeyFiles = []string{key}
	}
	completed, err := s.Complete(ctx)
	fail(err)
	for _, err := range completed.Validate() {
		fail(err)
	}
	if signer != "" {
		s.ServiceAccountSigningEndpoint, s.ServiceAccountSigningKeyFile = signer, ""
		accounts.KeyFiles = keys
	}

	line := setpointserver.FlagsOf(flagsOf(s), flagsOf(options.NewServerRunOptions()))
	line = append(line, fmt.Sprintf("--secure-port=%d", port))
	more, modes, err := asked.serve(folder)
	fail(err)
	line = append(line, more...)
	if s.Authorization.AuthorizationConfigurationFile == "" {
		line = append(line, "--authorization-mode="+strings.Join(append(modes, s.Authorization.Modes...), ","))
	}
	for _, named := range s.SecureServing.SNICertKeys {
		line = append(line, "--tls-sni-cert-key="+named.String())
	}
	serving := s.SecureServing.ServerCert.CertKey
	if serving.CertFile != "" {
		line = append(line, "--tls-cert-file="+serving.CertFile, "--tls-private-key-file="+serving.KeyFile)
	}
	line = append(line, setpointserver.Gates(utilfeature.DefaultMutableFeatureGate, s.GenericServerRunOptions.EmulationForwardCompatible)...)
	config, stop, err := setpointserver.Start(t, line)
	fail(err)
	if serving.CertFile != "" {
		setpointserver.Trust(config, serving.CertFile)
	}
	if asked.needsToken() {
		config.BearerToken = "any"
	}
	clients, err := client.NewForConfig(config)
	if err != nil {
		stop()
		asked.stop()
		fail(err)
	}
	return clients, config, func() {
		stop()
		asked.stop()
		os.RemoveAll(folder)
	}
}

func flagsOf(s *options.ServerRunOptions) *pflag.FlagSet {
	all := pflag.NewFlagSet("kube-apiserver", pflag.ContinueOnError)
	for _, set := range s.Flags().FlagSets {
		all.AddFlagSet(set)
	}
	return all
}

func writeCA(name, file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
}

func writeKey(file string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
