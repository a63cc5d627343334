//! The table of results, row by row and in random order (spec 5.3; property 3 of section 15). After
//! every pass, the limiter's count, the queue's contents and the pass's label agree with a ten-line
//! model.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use proptest::prelude::*;
use setpoint_runtime::{
    Action, BoxError, Context, Controller, RateLimits, Request, Terminal,
    controller::ControllerStats,
    queue::AddOptions,
    reconciler::AtPriority,
    source::{KeySink, SourceRun, source_fn},
};
use setpoint_workqueue::Phase;

use crate::{
    server::Server,
    world::{EVENTS, Trace, pass, run, settle},
};

/// The result of one pass.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// RES-1, RES-2, RES-9: success, with a requeue after this many milliseconds, with or without a
    /// priority (RES-12).
    After(Option<u64>, Option<i32>),
    /// RES-3.
    Requeue(Option<i32>),
    /// RES-5, and RES-6 with a priority; at this depth in the source chain.
    Error(Option<i32>, u8),
    /// RES-7, at this depth in the source chain; the innermost error is within one with a priority.
    Terminal(u8, bool),
    /// RES-8.
    Panic,
    /// RES-10: here the pass is dropped.
    Timeout,
}

fn step() -> impl Strategy<Value = Step> {
    let priority = || prop::option::of(-200..200_i32);
    prop_oneof![
        (prop::option::of(prop_oneof![Just(0), 10..60_u64]), priority())
            .prop_map(|(after, p)| Step::After(after, p)),
        priority().prop_map(Step::Requeue),
        (priority(), 0..3_u8).prop_map(|(p, depth)| Step::Error(p, depth)),
        (0..3_u8, any::<bool>()).prop_map(|(depth, at)| Step::Terminal(depth, at)),
        Just(Step::Panic),
        Just(Step::Timeout),
    ]
}

#[derive(Debug, thiserror::Error)]
#[error("around")]
struct Around(#[source] BoxError);

fn wrapped(mut error: BoxError, depth: u8) -> BoxError {
    for _ in 0..depth {
        error = Around(error).into();
    }
    error
}

const TIMEOUT: Duration = Duration::from_secs(30);

async fn play(step: Step) -> Result<Action, BoxError> {
    let at = |action: Action, priority: Option<i32>| match priority {
        Some(priority) => action.priority(priority),
        None => action,
    };
    match step {
        Step::After(None, p) => Ok(at(Action::await_change(), p)),
        Step::After(Some(ms), p) => Ok(at(Action::requeue_after(Duration::from_millis(ms)), p)),
        Step::Requeue(p) => Ok(at(Action::requeue(), p)),
        Step::Error(None, depth) => Err(wrapped("no".into(), depth)),
        Step::Error(Some(p), depth) => Err(wrapped(AtPriority::new(p, "no").into(), depth)),
        Step::Terminal(depth, false) => Err(wrapped(Terminal::new("never").into(), depth)),
        Step::Terminal(depth, true) => {
            Err(wrapped(AtPriority::new(1, Terminal::new("never")).into(), depth))
        }
        Step::Panic => std::panic::resume_unwind(Box::new("ouch")),
        Step::Timeout => std::future::pending().await,
    }
}

/// The expected result.
#[derive(Debug, Default)]
struct Model {
    failures: u32,
    stats: ControllerStats,
    attempts_max: Option<u32>,
}

impl Model {
    /// The back-off of the default limiter: 5 ms, doubling to 1000 s; counts up.
    fn backoff(&mut self) -> Duration {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.failures += 1;
        Duration::from_millis(5).saturating_mul(factor).min(Duration::from_secs(1000))
    }

    /// When, and at which priority, a key is requeued after a pass that it was handed out for at
    /// `priority`.
    fn apply(&mut self, step: Step, priority: i32) -> Option<(Duration, i32)> {
        let (asked, is_terminal) = match step {
            Step::After(None | Some(0), _) => {
                self.stats.success += 1;
                self.failures = 0;
                return None;
            }
            Step::After(Some(ms), p) => {
                self.stats.requeue_after += 1;
                self.failures = 0;
                return Some((Duration::from_millis(ms), p.unwrap_or(priority)));
            }
            Step::Requeue(p) => {
                self.stats.requeue += 1;
                return Some((self.backoff(), p.unwrap_or(priority)));
            }
            Step::Error(p, _) => (p, false),
            Step::Terminal(..) => (None, true),
            Step::Panic => {
                self.stats.panics += 1;
                (None, false)
            }
            Step::Timeout => {
                self.stats.timeouts += 1;
                (None, false)
            }
        };
        self.stats.error += 1;
        if is_terminal {
            self.stats.terminal += 1;
            return None;
        }
        if self.attempts_max.is_some_and(|max| self.failures + 1 >= max) {
            self.stats.given_up += 1;
            self.failures = 0;
            return None;
        }
        Some((self.backoff(), asked.unwrap_or(priority)))
    }
}

/// Plays the steps, each when the key comes back or is added at the next of `adds`.
async fn check(steps: Vec<Step>, adds: Vec<i32>, attempts_max: Option<u32>) {
    let server = Server::new(&[EVENTS]);
    let left = Arc::new(Mutex::new(VecDeque::from(steps.clone())));
    let seen: Arc<Mutex<Vec<(u32, i32)>>> = Arc::default();
    let reconciler = {
        let seen = seen.clone();
        move |_: Request, context: Context| {
            seen.lock().push((context.attempt(), context.priority()));
            let step = left.lock().pop_front().unwrap();
            play(step)
        }
    };
    let idle = source_fn("nothing", async |_: KeySink<Request>| Ok(SourceRun::none()));
    let mut controller = Controller::builder("table").source(idle).reconcile_timeout(TIMEOUT);
    if let Some(max) = attempts_max {
        controller = controller.rate_limiter(RateLimits::new().max_attempts(max));
    }
    let controller = controller.build(reconciler).unwrap();
    let queue = controller.queue();
    let (running, handle) = run(&server, controller);
    settle().await;

    let key = Request::new("default", "a");
    let mut model = Model { attempts_max, ..Model::default() };
    let mut adds = adds.into_iter().cycle();
    let mut due: Option<(Duration, i32)> = None;
    for (n, step) in steps.into_iter().enumerate() {
        let priority = match due {
            Some((wait, priority)) => {
                // Timers tick in milliseconds.
                pass(wait.saturating_sub(Duration::from_millis(2))).await;
                assert_eq!(seen.lock().len(), n, "{step:?} too early");
                pass(Duration::from_millis(3)).await;
                priority
            }
            None => {
                let priority = adds.next().unwrap();
                queue.add_with(key.clone(), AddOptions::default().priority(priority));
                settle().await;
                priority
            }
        };
        assert_eq!(seen.lock().last(), Some(&(model.failures, priority)), "{step:?} as number {n}");
        let began = tokio::time::Instant::now();
        if matches!(step, Step::Timeout) {
            pass(TIMEOUT).await;
        }
        due = model.apply(step, priority);
        let stats = handle.stats();
        assert_eq!(stats, model.stats, "{step:?}");
        assert_eq!(queue.num_requeues(&key), model.failures, "{step:?}");
        let entry = queue.entry(&key);
        match due {
            Some((wait, priority)) => {
                let entry = entry.unwrap();
                assert_eq!((entry.phase, entry.priority), (Phase::Waiting, priority), "{step:?}");
                let late = began.elapsed().saturating_sub(match step {
                    Step::Timeout => TIMEOUT,
                    _ => Duration::ZERO,
                });
                // The pass started a few ticks before this check.
                let due_in = entry.due_in.unwrap();
                let slack = Duration::from_millis(4);
                assert!(due_in <= wait && due_in + late + slack >= wait, "{due_in:?} of {wait:?}");
                due = Some((due_in, priority));
            }
            None => assert_eq!(entry, None, "{step:?}"),
        }
    }
    running.stop().await.unwrap();
}

fn block_on(test: impl Future<Output = ()>) {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap().block_on(test);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn res_1_to_12_and_pq_44_every_history_of_results_agrees_with_the_model(
        steps in prop::collection::vec(step(), 1..12),
        adds in prop::collection::vec(-200..200_i32, 1..4),
        attempts_max in prop::option::of(1..4_u32),
    ) {
        block_on(check(steps, adds, attempts_max));
    }
}

/// Every row, after every number of failures: covers what random histories may miss.
#[test]
fn res_1_to_12_every_row_after_up_to_three_failures() {
    let rows = [
        Step::After(None, None),
        Step::After(Some(0), Some(7)),
        Step::After(Some(20), None),
        Step::After(Some(20), Some(7)),
        Step::Requeue(None),
        Step::Requeue(Some(-7)),
        Step::Error(None, 0),
        Step::Error(Some(7), 2),
        Step::Terminal(0, false),
        Step::Terminal(2, false),
        Step::Terminal(1, true),
        Step::Panic,
        Step::Timeout,
    ];
    for row in rows {
        for n_failures in 0..4 {
            for attempts_max in [None, Some(3)] {
                let failures = std::iter::repeat_n(Step::Error(None, 0), n_failures);
                let steps = failures.chain([row, Step::After(None, None)]).collect();
                block_on(check(steps, vec![-100, 3], attempts_max));
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn res_11_changes_during_a_pass_merge_with_its_requeue() {
    // (result of the pass, event during the pass) → passes within a minute, and when.
    let trace = Trace::default();
    for action in
        [Action::requeue_after(Duration::from_secs(20)), Action::requeue(), Action::await_change()]
    {
        let server = Server::new(&[EVENTS]);
        let started = tokio::time::Instant::now();
        let (sink, first) = (trace.clone(), Mutex::new(Some(action)));
        let reconciler = move |_: Request, context: Context| {
            let at = started.elapsed().as_secs();
            sink.record(format!("{at} at {}", context.priority()));
            let action = first.lock().take().unwrap_or_else(Action::await_change);
            async move {
                pass(Duration::from_secs(5)).await;
                Ok::<_, BoxError>(action)
            }
        };
        let idle = source_fn("nothing", async |_: KeySink<Request>| Ok(SourceRun::none()));
        let controller = Controller::builder("table").source(idle).build(reconciler).unwrap();
        let queue = controller.queue();
        let (running, _) = run(&server, controller);
        let key = Request::cluster("a");
        queue.add_with(key.clone(), AddOptions::default().priority(-100));
        pass(Duration::from_secs(1)).await;
        for priority in [2, 5, 3] {
            queue.add_with(key.clone(), AddOptions::default().priority(priority));
        }
        pass(Duration::from_secs(59)).await;
        assert_eq!(trace.take(), "0 at -100 · 5 at 5", "{action:?}");
        running.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn given_up_key_is_reported_and_starts_again_at_a_change() {
    use k8s_openapi::api::core::v1::ConfigMap;
    use setpoint_runtime::Watch;

    use crate::world::{CONFIG_MAPS, config_map};

    const NEW_EVENTS: &str = "/apis/events.k8s.io/v1/events";
    let (server, trace) = (Server::new(&[CONFIG_MAPS, NEW_EVENTS]), Trace::default());
    let sink = trace.clone();
    let reconciler = move |_: Request, context: Context| {
        sink.record(context.attempt().to_string());
        std::future::ready(Err::<Action, BoxError>("no such device".into()))
    };
    let controller = Controller::builder("config")
        .for_(Watch::<ConfigMap>::new())
        .rate_limiter(RateLimits::new().max_attempts(3));
    let (running, handle) = run(&server, controller.build(reconciler).unwrap());
    let maps = "/api/v1/namespaces/default/configmaps";
    server.put(maps, config_map("a"));
    pass(Duration::from_secs(3600)).await;
    assert_eq!(trace.take(), "0 · 1 · 2");
    assert_eq!((handle.stats().error, handle.stats().given_up), (3, 1));
    assert_eq!(handle.queue().limited, 0, "WQ-43: nothing is kept of it");

    let mut changed = config_map("a");
    changed["spec"] = serde_json::json!(2);
    server.put(maps, changed);
    pass(Duration::from_secs(3600)).await;
    assert_eq!(trace.take(), "0 · 1 · 2");
    running.stop().await.unwrap();
    let events = format!("{:?}", server.list(NEW_EVENTS));
    assert!(events.contains("ReconcileGivenUp"), "{events}");
    assert!(events.contains("gave up after 3 attempts: no such device"), "{events}");
}
