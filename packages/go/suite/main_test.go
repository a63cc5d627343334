// Package suite is a suite as operators have it: it runs against the binaries in KUBEBUILDER_ASSETS, whoever made them. What only
// setpoint can do is in planes_test.go.
package suite

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	corev1 "k8s.io/api/core/v1"
)

// patience is how long a test waits for what must happen.
const patience = 30 * time.Second

// env is the environment that all tests share.
var env *environment

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	var err error
	if env, err = start(os.Getenv("KUBEBUILDER_ASSETS")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := env.stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	return m.Run()
}

// testContext ends before the test binary's own time does.
func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func clientset(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	made, err := kubernetes.NewForConfig(config)
	check(t, err)
	return made
}

func dynamicClient(t *testing.T, config *rest.Config) *dynamic.DynamicClient {
	t.Helper()
	made, err := dynamic.NewForConfig(config)
	check(t, err)
	return made
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually asks again and again, as suites do.
func eventually(t *testing.T, what string, holds func(context.Context) (bool, error)) {
	t.Helper()
	err := wait.PollUntilContextTimeout(context.Background(), 10*time.Millisecond, patience, true, holds)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// namespace makes a namespace for a test.
func namespace(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	wanted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "suite-"}}
	made, err := client.CoreV1().Namespaces().Create(testContext(t), wanted, metav1.CreateOptions{})
	check(t, err)
	return made.Name
}
