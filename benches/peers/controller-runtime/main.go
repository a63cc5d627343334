// A controller of controller-runtime that writes a status for each new object: the Go peer of the controllers in
// `benches/src/runtime/writes.rs`. It prints one line of JSON in their form. Debian has no controller-runtime: build it in a
// GOPATH with a checkout of controller-runtime and what that imports, and name the program in SETPOINT_BENCH_CONTROLLER_RUNTIME.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// The counts must not change for this long.
	quiet = 500 * time.Millisecond
	// Polling interval.
	look = 2 * time.Millisecond
	// The counts must change within this time.
	patience = time.Minute
)

// status is the status that is written.
var status = client.RawPatch(types.MergePatchType, []byte(`{"status": {"observedGeneration": 1, "currentHealthy": 0,
	"desiredHealthy": 1, "disruptionsAllowed": 0, "expectedPods": 1}}`))

// findings is what a controller was found to take.
type findings struct {
	Wall       float64 `json:"wall"`
	CPU        float64 `json:"cpu"`
	Reconciles uint64  `json:"n_reconciles"`
	Writes     uint64  `json:"n_writes"`
}

type counts struct{ reconciles, writes atomic.Uint64 }

func (c *counts) now() [2]uint64 { return [2]uint64{c.reconciles.Load(), c.writes.Load()} }

// untilQuiet waits until every object has been written and the counts stop changing.
func (c *counts) untilQuiet(objects uint64, begun time.Time, before time.Duration) (findings, error) {
	last, at, used := c.now(), begun, before
	for {
		time.Sleep(look)
		now := c.now()
		switch {
		case now != last:
			last, at, used = now, time.Now(), cpu()
		case now[1] >= objects && time.Since(at) > quiet:
			return findings{at.Sub(begun).Seconds(), (used - before).Seconds(), last[0], last[1]}, nil
		case time.Since(at) > patience:
			return findings{}, fmt.Errorf("%v of %d", now, objects)
		}
	}
}

func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func run() error {
	objects := flag.Uint64("objects", 0, "number of objects")
	// With controller-runtime's --kubeconfig.
	flag.Parse()

	ctrl.SetLogger(logr.Discard())
	config, err := ctrl.GetConfig()
	if err != nil {
		return err
	}
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  scheme.Scheme,
		Metrics: server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	counts := &counts{}
	api := manager.GetClient()
	write := reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		counts.reconciles.Add(1)
		budget := &policyv1.PodDisruptionBudget{}
		if err := api.Get(ctx, request.NamespacedName, budget); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		if budget.Status.ObservedGeneration == 1 {
			return reconcile.Result{}, nil
		}
		counts.writes.Add(1)
		err := api.Status().Patch(ctx, budget, status)
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return reconcile.Result{}, err
	})
	err = ctrl.NewControllerManagedBy(manager).
		For(&policyv1.PodDisruptionBudget{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: 1}).
		Complete(write)
	if err != nil {
		return err
	}

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	begun, before := time.Now(), cpu()
	go func() { ended <- manager.Start(ctx) }()
	found, err := counts.untilQuiet(*objects, begun, before)
	stop()
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
