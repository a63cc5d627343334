// Package setpointserver runs `setpoint envtest serve` where Kubernetes' integration tests run a
// kube-apiserver in their own process.
package setpointserver

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
)

const (
	// programVariable names the program.
	programVariable = "SETPOINT_PROGRAM"
	// logsVariable names the folder for the logs of the servers.
	logsVariable = "SETPOINT_LOGS"
	// controllersVariable is setpoint's own: which controllers run.
	controllersVariable = "SETPOINT_CONTROLLERS"

	startTimeout = time.Minute
	stopTimeout  = 10 * time.Second
)

// Owned are flags that every server gets from its caller here, not from the options of a test.
var Owned = []string{
	"authorization-mode", "bind-address", "cert-dir", "emulated-version", "external-hostname",
	"feature-gates", "secure-port", "tls-cert-file", "tls-private-key-file",
}

// FlagsOf gives the flags whose values were set by code, as a command line.
func FlagsOf(options, defaults *pflag.FlagSet, except ...string) []string {
	isOwned := map[string]bool{}
	for _, name := range append(except, Owned...) {
		isOwned[name] = true
	}
	var flags []string
	options.VisitAll(func(flag *pflag.Flag) {
		before := defaults.Lookup(flag.Name)
		if flag.Changed || isOwned[flag.Name] || before == nil {
			return
		}
		value := flag.Value.String()
		if value == before.Value.String() {
			return
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			value = strings.Join(list.GetSlice(), ",")
		}
		flags = append(flags, "--"+flag.Name+"="+value)
	})
	return flags
}

// Without gives a command line without the flags that begin with one of the words.
func Without(flags []string, words ...string) []string {
	var kept []string
next:
	for _, flag := range flags {
		for _, word := range words {
			if strings.HasPrefix(flag, word) {
				continue next
			}
		}
		if flag != "" {
			kept = append(kept, flag)
		}
	}
	return kept
}

// Gates gives the feature gates that are not at their defaults, as a flag.
func Gates(gates featuregate.MutableFeatureGate) []string {
	var pairs []string
	for name, spec := range gates.GetAll() {
		if name != "AllAlpha" && name != "AllBeta" && gates.Enabled(name) != spec.Default {
			pairs = append(pairs, fmt.Sprintf("%s=%v", name, gates.Enabled(name)))
		}
	}
	if len(pairs) == 0 {
		return nil
	}
	return []string{"--feature-gates=" + strings.Join(pairs, ",")}
}

// defaults adds what a kube-apiserver has and `envtest serve` would choose otherwise.
func defaults(flags []string) []string {
	for _, flag := range []string{"--allow-privileged=false", "--disable-admission-plugins="} {
		name, _, _ := strings.Cut(flag, "=")
		isGiven := false
		for _, given := range flags {
			isGiven = isGiven || given == name || strings.HasPrefix(given, name+"=")
		}
		if !isGiven {
			flags = append(flags, flag)
		}
	}
	return flags
}

// Logger is the part of a test that is written to.
type Logger interface {
	Logf(format string, args ...interface{})
}

// Start runs the program. It gives the configuration of an administrator's client, and what stops
// the program.
func Start(t Logger, flags []string) (*rest.Config, func(), error) {
	command := exec.Command(os.Getenv(programVariable), append([]string{"envtest", "serve"}, defaults(flags)...)...)
	command.Env = append(os.Environ(), "RUST_LOG=warn")
	if os.Getenv(controllersVariable) == "" {
		command.Env = append(command.Env, controllersVariable+"=none")
	}
	log, err := os.CreateTemp(os.Getenv(logsVariable), "server-*.log")
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	t.Logf("%s; its log is %s", strings.Join(command.Args, " "), log.Name())
	command.Stderr = log
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := command.Start(); err != nil {
		return nil, nil, err
	}
	stop := func() {
		command.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(stopTimeout, func() {
			t.Logf("the server does not stop")
			command.Process.Kill()
		})
		defer late.Stop()
		command.Wait()
	}
	first := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(output).ReadString('\n')
		first <- line
	}()
	var line string
	select {
	case line = <-first:
	case <-time.After(startTimeout):
	}
	var ready struct {
		URL                  string `json:"url"`
		CertificateAuthority string `json:"certificateAuthority"`
		Token                string `json:"token"`
	}
	if err := json.Unmarshal([]byte(line), &ready); err != nil {
		stop()
		text, _ := os.ReadFile(log.Name())
		return nil, nil, fmt.Errorf("the server does not start: %s", text)
	}
	config := &rest.Config{Host: ready.URL, BearerToken: ready.Token, QPS: 1000, Burst: 10000}
	if strings.Contains(ready.CertificateAuthority, "-----BEGIN") {
		config.CAData = []byte(ready.CertificateAuthority)
	} else {
		config.CAFile = ready.CertificateAuthority
	}
	return config, stop, nil
}
