// One measure of client-go's work queue. It prints one line of JSON in the form of the Rust program's: nanoseconds of processor time and
// of wall time a piece.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/util/workqueue"
)

const (
	cycles   = 2_000_000
	keys     = 1_000_000
	timerMin = 8 * time.Second
	timerEnd = 10 * time.Second
)

type stopwatch struct {
	cpu, wall time.Duration
}

type figure struct {
	CPU   float64 `json:"cpu"`
	Wall  float64 `json:"wall"`
	Fire  float64 `json:"fire"`
	Bytes float64 `json:"bytes"`
}

var begun = time.Now()

func processor() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func start() stopwatch {
	return stopwatch{processor(), time.Since(begun)}
}

func (s stopwatch) each(n int) figure {
	return figure{
		CPU:  float64(processor()-s.cpu) / float64(n),
		Wall: float64(time.Since(begun)-s.wall) / float64(n),
	}
}

func resident() float64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		panic(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	if err != nil {
		panic(err)
	}
	return float64(pages * os.Getpagesize())
}

func drain(queue workqueue.TypedInterface[uint64], n int) {
	for range n {
		key, _ := queue.Get()
		queue.Done(key)
	}
}

func cycle(n uint64) figure {
	queue := workqueue.NewTyped[uint64]()
	watch := start()
	for i := range uint64(cycles) {
		queue.Add(i % n)
		drain(queue, 1)
	}
	return watch.each(cycles)
}

func fill() figure {
	queue := workqueue.NewTyped[uint64]()
	watch := start()
	for i := range uint64(keys) {
		queue.Add(i)
	}
	drain(queue, keys)
	return watch.each(keys)
}

func pairs() figure {
	queue := workqueue.NewTyped[uint64]()
	var producers, workers sync.WaitGroup
	watch := start()
	for range 2 {
		workers.Go(func() {
			for {
				key, shutdown := queue.Get()
				if shutdown {
					return
				}
				queue.Done(key)
			}
		})
	}
	for producer := range uint64(2) {
		producers.Go(func() {
			for i := range uint64(keys / 2) {
				queue.Add(i*2 + producer)
			}
		})
	}
	producers.Wait()
	queue.ShutDown()
	workers.Wait()
	return watch.each(keys)
}

func limited() figure {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[uint64](1, 1)
	queue := workqueue.NewTypedRateLimitingQueue(limiter)
	watch := start()
	for i := range uint64(keys) {
		queue.AddRateLimited(i)
		key, _ := queue.Get()
		queue.Forget(key)
		queue.Done(key)
	}
	return watch.each(keys)
}

func timers() figure {
	queue := workqueue.NewTypedDelayingQueue[uint64]()
	before := resident()
	watch := start()
	scatter := uint64(1)
	for i := range uint64(keys) {
		scatter = scatter*6364136223846793005 + 1442695040888963407
		queue.AddAfter(i, timerMin+time.Duration(scatter>>35))
	}
	figure := watch.each(keys)
	runtime.GC()
	figure.Bytes = (resident() - before) / keys
	fire := start()
	time.Sleep(timerEnd - time.Since(begun))
	drain(queue, keys)
	figure.Fire = fire.each(keys).CPU
	return figure
}

func main() {
	measures := map[string]func() figure{
		"cycle":      func() figure { return cycle(1) },
		"cycle-1024": func() figure { return cycle(1024) },
		"fill":       fill,
		"pairs":      pairs,
		"limited":    limited,
		"timers":     timers,
	}
	measure, known := measures[os.Args[1]]
	if !known {
		fmt.Fprintln(os.Stderr, "no such measure:", os.Args[1])
		os.Exit(2)
	}
	if err := json.NewEncoder(os.Stdout).Encode(measure()); err != nil {
		panic(err)
	}
}
