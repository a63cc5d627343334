// Package setpointserver runs `setpoint envtest serve` where Kubernetes' integration tests run a
// kube-apiserver in their own process.
package setpointserver

import (
	"bufio"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/spf13/pflag"
	apimachineryversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
)

const (
	// programVariable names the program.
	programVariable = "SETPOINT_PROGRAM"
	// logsVariable names the folder for the logs of the servers.
	logsVariable = "SETPOINT_LOGS"
	// controllersVariable is setpoint's own: which controllers run.
	controllersVariable = "SETPOINT_CONTROLLERS"

	// token is that of the API server's own user, as whom the tests act.
	token = "loopback"

	startTimeout = time.Minute
	stopTimeout  = 10 * time.Second
)

// Owned are flags that every server gets from its caller here, not from the options of a test.
var Owned = []string{
	"authorization-mode", "bind-address", "cert-dir", "emulated-version",
	"emulation-forward-compatible", "external-hostname", "feature-gates",
	"min-compatibility-version", "runtime-config-emulation-forward-compatible", "secure-port",
	"tls-cert-file", "tls-private-key-file", "tls-sni-cert-key",
}

// Versions are the flags that [Gates] gives.
var Versions = []string{
	"--emulated-version", "--emulation-forward-compatible", "--feature-gates",
	"--min-compatibility-version", "--runtime-config-emulation-forward-compatible",
}

// NewRegistry gives a registry of its own for the options of a server, and copies of the feature
// gates of the test's process, in the version that they emulate.
func NewRegistry() (basecompatibility.ComponentGlobalsRegistry, featuregate.MutableVersionedFeatureGate, error) {
	gates := utilfeature.DefaultMutableFeatureGate.DeepCopy()
	version := compatibility.DefaultKubeEffectiveVersionForTest()
	version.SetEmulationVersion(gates.EmulationVersion())
	version.SetMinCompatibilityVersion(gates.MinCompatibilityVersion())
	registry := basecompatibility.NewComponentGlobalsRegistry()
	err := registry.Register(basecompatibility.DefaultKubeComponent, version, gates)
	return registry, gates, err
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

// Without gives a command line without some flags.
func Without(flags []string, names ...string) []string {
	var kept []string
next:
	for i := 0; i < len(flags); i++ {
		for _, name := range names {
			if flags[i] == name {
				// Its value is the next argument.
				i++
				continue next
			}
			if strings.HasPrefix(flags[i], name+"=") {
				continue next
			}
		}
		if flags[i] != "" {
			kept = append(kept, flags[i])
		}
	}
	return kept
}

// value gives that of the last flag of a name; empty if there is none.
func value(flags []string, name string) string {
	last := ""
	for i, flag := range flags {
		if flag == name && i+1 < len(flags) {
			last = flags[i+1]
		} else if text, ok := strings.CutPrefix(flag, name+"="); ok {
			last = text
		}
	}
	return last
}

// The oldest and the newest version that the program emulates.
var oldest, newest = apimachineryversion.MajorMinor(1, 33), apimachineryversion.MajorMinor(1, 36)

// Gates gives the version that the gates emulate, and those that are not at its defaults, as flags.
// Of a version that the program cannot emulate, only the gates. Shards are said in any case: the
// program has them by default.
func Gates(gates featuregate.MutableVersionedFeatureGate, isForwardCompatible bool) []string {
	var flags, pairs []string
	emulated := gates.EmulationVersion()
	if emulated.LessThan(oldest) || !emulated.LessThan(newest) {
		emulated = newest
	} else {
		compatible := gates.MinCompatibilityVersion()
		if compatible.LessThan(oldest) {
			compatible = oldest
		}
		flags = append(flags,
			fmt.Sprintf("--emulated-version=%d.%d", emulated.Major(), emulated.Minor()),
			fmt.Sprintf("--min-compatibility-version=%d.%d", compatible.Major(), compatible.Minor()),
			"--runtime-config-emulation-forward-compatible",
			fmt.Sprintf("--emulation-forward-compatible=%v", isForwardCompatible),
		)
	}
	for name, specs := range gates.GetAllVersioned() {
		isKnown, isOn := false, false
		for _, spec := range specs {
			if spec.Version.LessThan(emulated) || spec.Version.EqualTo(emulated) {
				isKnown, isOn = true, spec.Default
			}
		}
		differs := gates.Enabled(name) != isOn || name == "ShardedListAndWatch"
		if isKnown && differs && name != "AllAlpha" && name != "AllBeta" {
			pairs = append(pairs, fmt.Sprintf("%s=%v", name, gates.Enabled(name)))
		}
	}
	if len(pairs) > 0 {
		flags = append(flags, "--feature-gates="+strings.Join(pairs, ","))
	}
	return flags
}

// defaults adds what a kube-apiserver has and `envtest serve` would choose otherwise.
func defaults(flags []string) []string {
	chosen := []string{"--allow-privileged=false", "--disable-admission-plugins=", "--audit-log-mode=blocking"}
	for _, flag := range chosen {
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

// withToken adds the token of the API server's own user to those of a file, if there is one.
func withToken(flags []string) ([]string, string, error) {
	const name = "--token-auth-file"
	var tokens []byte
	if file := value(flags, name); file != "" {
		given, err := os.ReadFile(file)
		if err != nil {
			return nil, "", err
		}
		tokens = append(given, '\n')
	}
	file, err := os.CreateTemp("", "setpoint-tokens")
	if err != nil {
		return nil, "", err
	}
	defer file.Close()
	_, err = file.Write(append(tokens, token+",system:apiserver,0,system:masters\n"...))
	return append(Without(flags, name), name+"="+file.Name()), file.Name(), err
}

// Trust makes a client trust the authority of a certificate, whose host it may have to name: not
// every test has one for the loopback address.
func Trust(config *rest.Config, certificate string) {
	text, err := os.ReadFile(certificate)
	if err != nil {
		return
	}
	// As text and as a file: tests write one or the other into their own files.
	config.CAData, config.CAFile = text, certificate
	block, _ := pem.Decode(text)
	if block == nil {
		return
	}
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err == nil && parsed.VerifyHostname("127.0.0.1") != nil && len(parsed.DNSNames) > 0 {
		config.ServerName = parsed.DNSNames[0]
	}
}

// hostname is the function by which the server in this process would learn its host's name. Tests
// replace it.
//
//go:linkname hostname k8s.io/apiserver/pkg/server.hostnameFunc
var hostname func() (string, error)

// onHost makes a command run on a host with the name that a test has given to its server. That
// takes a namespace of Linux, in which everything else stays.
func onHost(command *exec.Cmd) {
	if hostname == nil {
		return
	}
	name, err := hostname()
	if own, _ := os.Hostname(); err != nil || name == own {
		return
	}
	args := []string{"--uts"}
	if os.Getuid() != 0 {
		args = append(args, "--map-root-user")
	}
	args = append(args, "sh", "-c", `hostname "$0" && exec "$@"`, name)
	inside := exec.Command("unshare", append(args, command.Args...)...)
	command.Path, command.Args = inside.Path, inside.Args
}

// Logger is the part of a test that is written to.
type Logger interface {
	Logf(format string, args ...interface{})
}

// Start runs the program. It gives the configuration of an administrator's client, and what stops
// the program.
func Start(t Logger, flags []string) (*rest.Config, func(), error) {
	flags, tokens, err := withToken(flags)
	if err != nil {
		return nil, nil, err
	}
	command := exec.Command(os.Getenv(programVariable), append([]string{"envtest", "serve"}, defaults(flags)...)...)
	onHost(command)
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
		os.Remove(tokens)
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
	}
	if err := json.Unmarshal([]byte(line), &ready); err != nil {
		stop()
		text, _ := os.ReadFile(log.Name())
		return nil, nil, fmt.Errorf("the server does not start: %s", text)
	}
	// As the original's own client, without a limit of requests.
	config := &rest.Config{Host: ready.URL, BearerToken: token, QPS: -1}
	if strings.Contains(ready.CertificateAuthority, "-----BEGIN") {
		config.CAData = []byte(ready.CertificateAuthority)
	} else {
		config.CAFile = ready.CertificateAuthority
		config.CAData, _ = os.ReadFile(config.CAFile)
	}
	return config, stop, nil
}
