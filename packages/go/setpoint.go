// Package setpoint starts Kubernetes control planes for tests: one process for a package, a control plane for each test.
//
//	func TestReconciler(t *testing.T) {
//		plane := setpoint.NewPlane(t)
//		clientset := kubernetes.NewForConfigOrDie(plane.Config)
//
// The program is the one that SETPOINT names, the one in KUBEBUILDER_ASSETS, or setpoint in PATH. The package is this one file: it
// can be copied.
package setpoint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// answerBytesMax is the size of the largest answer that is read.
	answerBytesMax = 1 << 20
	// headBytesMax is how much of a process's first words is kept for an error.
	headBytesMax = 4 << 10
)

// head keeps the beginning of what is written to it.
type head struct{ bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	if h.Len() < headBytesMax {
		h.Buffer.Write(p)
	}
	return len(p), nil
}

// access is how an API server is reached by its administrator.
type access struct {
	ID         uint64 `json:"id"`
	URL        string `json:"url"`
	Kubeconfig string `json:"kubeconfig"`
}

// Server is a process of setpoint. It is an API server itself, but tests want a Plane each.
type Server struct {
	// Kubeconfig is the administrator's.
	Kubeconfig []byte
	// Config is made of Kubeconfig.
	Config *rest.Config

	client  *http.Client
	process *exec.Cmd
}

// Plane is a control plane with its own objects, port and administrator.
type Plane struct {
	// Kubeconfig is the administrator's.
	Kubeconfig []byte
	// Config is made of Kubeconfig.
	Config *rest.Config

	server *Server
	path   string
}

// shared is the process of NewPlane. It ends with this process.
var shared = sync.OnceValues(func() (*Server, error) { return Start() })

// NewPlane makes a control plane that ends with the test.
func NewPlane(t testing.TB) *Plane {
	t.Helper()
	return newPlane(t, false)
}

// NewVirtualPlane makes a control plane whose time can be advanced, and that ends with the test.
func NewVirtualPlane(t testing.TB) *Plane {
	t.Helper()
	return newPlane(t, true)
}

func newPlane(t testing.TB, isVirtual bool) *Plane {
	t.Helper()
	server, err := shared()
	if err != nil {
		t.Fatalf("start setpoint: %v", err)
	}
	plane, err := server.newPlane(isVirtual)
	if err != nil {
		t.Fatalf("make a control plane: %v", err)
	}
	t.Cleanup(func() {
		if err := plane.Close(); err != nil {
			t.Errorf("end the control plane: %v", err)
		}
	})
	return plane
}

// Start starts a process with flags of kube-apiserver, and waits until it serves. It ends with Stop, or with this process.
func Start(flags ...string) (*Server, error) {
	path, err := program()
	if err != nil {
		return nil, err
	}
	// The name decides what the program is: among assets it has another one.
	process := &exec.Cmd{Path: path, Args: append([]string{"setpoint", "envtest", "serve"}, flags...)}
	var stderr head
	process.Stderr = &stderr
	stdout, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, err
	}
	var found access
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &found)
	}
	server := &Server{Kubeconfig: []byte(found.Kubeconfig), process: process}
	if err == nil {
		server.Config, err = clientcmd.RESTConfigFromKubeConfig(server.Kubeconfig)
	}
	if err == nil {
		server.client, err = rest.HTTPClientFor(server.Config)
	}
	if err != nil {
		stopped := server.Stop()
		return nil, fmt.Errorf("%s: %w, %v\n%s", path, err, stopped, stderr.String())
	}
	return server, nil
}

// program finds the program.
func program() (string, error) {
	if path := os.Getenv("SETPOINT"); path != "" {
		return path, nil
	}
	if assets := os.Getenv("KUBEBUILDER_ASSETS"); assets != "" {
		// Not the original's.
		if _, err := os.Stat(filepath.Join(assets, ".setpoint")); err == nil {
			return filepath.Join(assets, "kube-apiserver"), nil
		}
	}
	return exec.LookPath("setpoint")
}

// NewPlane makes a control plane. The caller closes it.
func (s *Server) NewPlane() (*Plane, error) { return s.newPlane(false) }

// NewVirtualPlane makes a control plane whose time can be advanced. The caller closes it.
func (s *Server) NewVirtualPlane() (*Plane, error) { return s.newPlane(true) }

func (s *Server) newPlane(isVirtual bool) (*Plane, error) {
	var made access
	if err := s.request(http.MethodPost, "/setpoint/planes", map[string]bool{"virtualTime": isVirtual}, &made); err != nil {
		return nil, err
	}
	plane := &Plane{Kubeconfig: []byte(made.Kubeconfig), server: s, path: fmt.Sprintf("/setpoint/planes/%d", made.ID)}
	var err error
	if plane.Config, err = clientcmd.RESTConfigFromKubeConfig(plane.Kubeconfig); err != nil {
		return nil, errors.Join(err, plane.Close())
	}
	// Tests wait for nobody.
	plane.Config.QPS = -1
	return plane, nil
}

// Stop ends the process and all its control planes.
func (s *Server) Stop() error {
	if err := s.process.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return s.process.Wait()
}

// Snapshot keeps the state under a name.
func (p *Plane) Snapshot(name string) error {
	return p.server.request(http.MethodPost, p.path+"/snapshot", map[string]string{"name": name}, nil)
}

// Reset brings the state of a snapshot back. Watches see the differences as changes.
func (p *Plane) Reset(name string) error {
	return p.server.request(http.MethodPost, p.path+"/reset", map[string]string{"name": name}, nil)
}

// Advance lets time pass, at most a week. It returns the time that is reached. Only with virtual time.
func (p *Plane) Advance(by time.Duration) (time.Time, error) {
	var reached struct{ Time time.Time }
	err := p.server.request(http.MethodPost, p.path+"/advance", map[string]float64{"seconds": by.Seconds()}, &reached)
	return reached.Time, err
}

// Close ends the control plane.
func (p *Plane) Close() error {
	return p.server.request(http.MethodDelete, p.path, nil, nil)
}

// request sends a document, unless it is nil, and reads one, unless nobody wants it.
func (s *Server) request(method, path string, body, into any) error {
	encoded := []byte{}
	if body != nil {
		var err error
		if encoded, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequest(method, s.Config.Host+path, bytes.NewReader(encoded))
	if err != nil {
		return err
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, answerBytesMax))
	if err != nil {
		return err
	}
	if answer.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}
