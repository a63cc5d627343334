package suite

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

// environment is an etcd and a kube-apiserver, started with the files and flags that controller-runtime's envtest gives them.
type environment struct {
	config *rest.Config

	folder    string
	clients   *authority
	etcd      *program
	apiServer *program
}

// program is a child, and how it ended.
type program struct {
	command *exec.Cmd
	ended   chan error
}

// serial numbers certificates.
var serial atomic.Int64

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

// pair is a certificate and its key in PEM.
type pair struct{ certificate, key []byte }

func template(name string, organizations ...string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial.Add(1)),
		Subject:      pkix.Name{CommonName: name, Organization: organizations},
		NotBefore:    time.Now().Add(-time.Minute),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func newAuthority() (*authority, error) {
	wanted := template("envtest-environment", "envtest")
	wanted.KeyUsage |= x509.KeyUsageCertSign
	wanted.IsCA, wanted.BasicConstraintsValid = true, true
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, wanted, wanted, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &authority{certificate, key}, err
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

// sign makes a key and a certificate for it.
func (a *authority) sign(wanted *x509.Certificate) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair{}, err
	}
	der, err := x509.CreateCertificate(rand.Reader, wanted, a.certificate, key.Public(), a.key)
	if err != nil {
		return pair{}, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	return pair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
	}, err
}

// server signs a certificate for localhost.
func (a *authority) server() (pair, error) {
	wanted := template("localhost", "envtest")
	wanted.DNSNames = []string{"localhost"}
	wanted.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	wanted.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return a.sign(wanted)
}

// user returns the configuration of a client with a certificate of its own.
func (e *environment) user(name string, groups ...string) (*rest.Config, error) {
	wanted := template(name, groups...)
	wanted.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	signed, err := e.clients.sign(wanted)
	made := rest.AnonymousClientConfig(e.config)
	made.CertData, made.KeyData = signed.certificate, signed.key
	return made, err
}

// apiServerFlags returns the flags that the environment adds, separated by spaces.
func apiServerFlags() []string {
	return strings.Fields(os.Getenv("SUITE_API_SERVER_FLAGS"))
}

// start starts both programs, each until it says that it is healthy.
func start(assets string) (started *environment, err error) {
	if assets == "" {
		return nil, errors.New("KUBEBUILDER_ASSETS is not set")
	}
	folder, err := os.MkdirTemp("", "k8s_test_framework_")
	if err != nil {
		return nil, err
	}
	env := &environment{folder: folder}
	defer func() {
		if err != nil {
			err = errors.Join(err, env.stop())
		}
	}()
	serving, err := newAuthority()
	if err != nil {
		return nil, err
	}
	if env.clients, err = newAuthority(); err != nil {
		return nil, err
	}
	server, err := serving.server()
	if err != nil {
		return nil, err
	}
	signer, err := serving.sign(template("sa-signer"))
	if err != nil {
		return nil, err
	}
	file := func(name string) string { return filepath.Join(folder, name) }
	for name, text := range map[string][]byte{
		"apiserver.crt": server.certificate, "apiserver.key": server.key,
		"sa-signer.crt": signer.certificate, "sa-signer.key": signer.key,
		"client-cert-auth-ca.crt": env.clients.pem(),
	} {
		if err := os.WriteFile(file(name), text, 0o640); err != nil {
			return nil, err
		}
	}
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	etcdURL := "http://127.0.0.1:" + ports[0]
	if env.etcd, err = launch(filepath.Join(assets, "etcd"), etcdURL+"/health",
		"--advertise-client-urls="+etcdURL, "--data-dir="+file("etcd"), "--listen-client-urls="+etcdURL,
		"--listen-peer-urls=http://127.0.0.1:"+ports[1], "--unsafe-no-fsync=true",
	); err != nil {
		return nil, err
	}
	url := "https://127.0.0.1:" + ports[2]
	flags := append(apiServerFlags(),
		"--allow-privileged=true", "--authorization-mode=RBAC", "--bind-address=127.0.0.1", "--cert-dir="+folder,
		"--client-ca-file="+file("client-cert-auth-ca.crt"), "--disable-admission-plugins=ServiceAccount",
		"--etcd-servers="+etcdURL, "--secure-port="+ports[2], "--service-account-issuer="+url+"/",
		"--service-account-key-file="+file("sa-signer.crt"), "--service-account-signing-key-file="+file("sa-signer.key"),
		"--service-cluster-ip-range=10.0.0.0/24",
	)
	if env.apiServer, err = launch(filepath.Join(assets, "kube-apiserver"), url+"/healthz", flags...); err != nil {
		return nil, err
	}
	env.config = &rest.Config{Host: url, QPS: 1000, Burst: 2000}
	env.config.CAData = serving.pem()
	admin, err := env.user("admin", "system:masters")
	env.config = admin
	return env, err
}

func freePorts(n int) ([]string, error) {
	// Below the ports of outgoing connections, which could take one before the program listens.
	const first, count = 12_000, 20_000
	var ports []string
	start := mathrand.IntN(count)
	for step := 0; step < count && len(ports) < n; step++ {
		port := strconv.Itoa(first + (start+step)%count)
		// Held until all are found, so that they differ.
		if listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err == nil {
			defer listener.Close()
			ports = append(ports, port)
		}
	}
	if len(ports) < n {
		return nil, errors.New("no free port")
	}
	return ports, nil
}

// launch starts a program and waits for its health.
func launch(path, health string, flags ...string) (*program, error) {
	started := &program{command: exec.Command(path, flags...), ended: make(chan error, 1)}
	started.command.Stderr = os.Stderr
	if err := started.command.Start(); err != nil {
		return nil, err
	}
	go func() { started.ended <- started.command.Wait() }()
	// As envtest: whoever answers is right.
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	deadline := time.After(patience)
	for {
		if answer, err := client.Get(health); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return started, nil
			}
		}
		select {
		case err := <-started.ended:
			return nil, fmt.Errorf("%s has ended: %w", path, err)
		case <-deadline:
			return nil, errors.Join(fmt.Errorf("%s is not healthy", path), started.stop())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (p *program) stop() error {
	if p == nil {
		return nil
	}
	if err := p.command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-p.ended:
		return err
	case <-time.After(patience):
		return errors.Join(errors.New("it does not stop"), p.command.Process.Kill())
	}
}

func (e *environment) stop() error {
	return errors.Join(e.apiServer.stop(), e.etcd.stop(), os.RemoveAll(e.folder))
}
