package suite

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	setpoint "github.com/setpoint-rs/setpoint/packages/go"
)

// TestPlanes: a control plane for each of some parallel tests, with the same names in each.
func TestPlanes(t *testing.T) {
	for i := range 4 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			client := clientset(t, setpoint.NewPlane(t).Config)
			maps := client.CoreV1().ConfigMaps("default")
			for _, name := range []string{"a", "b"} {
				_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
				check(t, err)
			}
			// Unlike with envtest, namespaces go away.
			ns := namespace(t, client)
			check(t, client.CoreV1().Namespaces().Delete(ctx, ns, metav1.DeleteOptions{}))
			eventually(t, "the namespace is gone", func(ctx context.Context) (bool, error) {
				_, err := client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{})
				return apierrors.IsNotFound(err), nil
			})
		})
	}
}

// TestReset: a plane goes back to a snapshot.
func TestReset(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	plane := setpoint.NewPlane(t)
	maps := clientset(t, plane.Config).CoreV1().ConfigMaps("default")
	check(t, plane.Snapshot("start"))
	_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, metav1.CreateOptions{})
	check(t, err)
	check(t, plane.Reset("start"))
	eventually(t, "the object is gone", func(ctx context.Context) (bool, error) {
		_, err := maps.Get(ctx, "a", metav1.GetOptions{})
		return apierrors.IsNotFound(err), nil
	})
	if err := plane.Reset("other"); err == nil {
		t.Error("there is no such snapshot")
	}
}

// TestVirtualTime: the time of a plane is advanced.
func TestVirtualTime(t *testing.T) {
	t.Parallel()
	plane := setpoint.NewVirtualPlane(t)
	before := time.Now()
	reached, err := plane.Advance(time.Hour + time.Minute)
	check(t, err)
	if passed := reached.Sub(before); passed < time.Hour {
		t.Errorf("%v have passed", passed)
	}
}
