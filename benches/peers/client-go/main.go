// One client of the source in Go: a client-go shared informer of Pods. It syncs, takes the events in, and prints one line of JSON
// in the form of the Rust clients'.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

type facts struct {
	Objects     uint64 `json:"n_objects"`
	Events      uint64 `json:"n_events"`
	LastVersion uint64 `json:"last_version"`
}

type findings struct {
	Objects    uint64  `json:"n_objects"`
	SyncWall   float64 `json:"sync_wall"`
	SyncCPU    float64 `json:"sync_cpu"`
	Heap       uint64  `json:"heap"`
	RSSStart   uint64  `json:"rss_start"`
	RSSSynced  uint64  `json:"rss_synced"`
	RSSPeak    uint64  `json:"rss_peak"`
	RSSEnd     uint64  `json:"rss_end"`
	Events     uint64  `json:"n_events"`
	Calls      uint64  `json:"n_calls"`
	EventsWall float64 `json:"events_wall"`
	EventsCPU  float64 `json:"events_cpu"`
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// cpu is the user and system time of the process, in seconds.
func cpu() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(usage.Utime) + seconds(usage.Stime)
}

// resident is the resident set and its peak, in bytes.
func resident() (now, peak uint64) {
	text, err := os.ReadFile("/proc/self/status")
	check(err)
	for _, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseUint(fields[1], 10, 64)
		switch fields[0] {
		case "VmRSS:":
			now = kib * 1024
		case "VmHWM:":
			peak = kib * 1024
		}
	}
	return now, peak
}

func ask(server, path string) []byte {
	response, err := http.Get(server + path)
	check(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	check(err)
	return body
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func main() {
	server := flag.String("server", "", "where the source is")
	prune := flag.Bool("prune", false, "leave managedFields out of the cache")
	syncOnly := flag.Bool("sync-only", false, "end after the sync")
	flag.Parse()

	var known facts
	check(json.Unmarshal(ask(*server, "/bench/start"), &known))
	config := &rest.Config{Host: *server, QPS: -1}
	config.ContentType = "application/json"
	config.AcceptContentTypes = "application/json"
	_ = scheme.Scheme
	client, err := corev1client.NewForConfig(config)
	check(err)

	ctx := context.Background()
	pods := client.Pods(metav1.NamespaceAll)
	listWatch := cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (kruntime.Object, error) {
			return pods.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return pods.Watch(ctx, options)
		},
	}, client)
	informer := cache.NewSharedIndexInformer(listWatch, &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if *prune {
		check(informer.SetTransform(func(object any) (any, error) {
			if pod, ok := object.(*corev1.Pod); ok {
				pod.ManagedFields = nil
			}
			return object, nil
		}))
	}

	var found findings
	found.RSSStart, _ = resident()
	heapBefore := heap()
	started, cpuBefore := time.Now(), cpu()

	var calls atomic.Uint64
	last := strconv.FormatUint(known.LastVersion, 10)
	done := make(chan struct{})
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) {},
		UpdateFunc: func(_, object any) {
			calls.Add(1)
			if object.(*corev1.Pod).ResourceVersion == last {
				close(done)
			}
		},
	})
	check(err)
	go informer.RunWithContext(ctx)
	for !registration.HasSynced() {
		time.Sleep(time.Millisecond)
	}

	found.SyncWall = time.Since(started).Seconds()
	found.SyncCPU = cpu() - cpuBefore
	found.Objects = uint64(len(informer.GetStore().ListKeys()))
	if found.Objects != known.Objects {
		check(fmt.Errorf("%d objects are cached", found.Objects))
	}
	found.RSSSynced, found.RSSPeak = resident()
	found.Heap = heap() - heapBefore

	if !*syncOnly && known.Events > 0 {
		time.Sleep(200 * time.Millisecond)
		started, cpuBefore = time.Now(), cpu()
		ask(*server, "/bench/events")
		<-done
		found.EventsCPU = cpu() - cpuBefore
		found.EventsWall = time.Since(started).Seconds()
		found.Events, found.Calls = known.Events, calls.Load()
		found.RSSEnd, _ = resident()
	}
	line, err := json.Marshal(found)
	check(err)
	fmt.Println(string(line))
}
