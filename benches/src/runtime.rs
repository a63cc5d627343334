//! The controller runtime beside kube-runtime's `Controller`: the same work, in turns, in one run.
//!
//! `cargo xtask bench runtime`. The reconciler does nothing and reads nothing, or reads its object
//! from the cache. Throughput and
//! memory are those of processes of their own, fed by the source that the informers are measured
//! with; latency is that of an API server in this process, because there both ends of a delivery
//! are on one clock.

mod latency;
pub(crate) mod writes;

use crate::client::Findings;
use crate::in_process;
use crate::informer::{Source, Subject};
use crate::results;
use crate::table::Table;

/// How much to measure.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// How often each controller runs.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How many Pods there are.
    #[arg(long, default_value_t = 50_000)]
    objects: u64,
    /// How many MODIFIED events follow.
    #[arg(long, default_value_t = 100_000)]
    events: u64,
    /// Write nothing.
    #[arg(long)]
    dry: bool,
}

/// How many new objects get a status.
const NEW_OBJECTS: u64 = 10_000;

/// The heading in the document.
const HEADING: &str = "Controller runtime";

/// What one controller was found to take, in all rounds.
struct Measured {
    subject: Subject,
    findings: Vec<Findings>,
    /// Bytes on the heap for each object, once all are reconciled.
    heap: Option<f64>,
}

impl Measured {
    fn median(&self, figure: impl Fn(&Findings) -> f64) -> f64 {
        let mut figures: Vec<f64> = self.findings.iter().map(figure).collect();
        figures.sort_unstable_by(f64::total_cmp);
        figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// Events taken in for a second of CPU.
    fn events(&self) -> f64 {
        self.median(|found| found.n_events as f64 / found.events_cpu)
    }

    /// Reconciles for a second of CPU.
    fn reconciles(&self) -> f64 {
        self.median(|found| found.n_calls as f64 / found.events_cpu)
    }

    fn triggered(&self) -> f64 {
        self.median(|found| found.n_triggered as f64 / found.triggered_cpu)
    }
}

const OURS: [&str; 2] = ["setpoint, 1 worker", "setpoint, 8 workers"];
const THEIRS: [&str; 2] = ["kube-runtime 5, 1 worker", "kube-runtime 5, 8 workers"];
const UNEXPLAINED: &str = "setpoint, 1 worker, no explanations";
const READS_WHOLE: &str = "setpoint, reads a Pod, `Compact`";
const READS_ROOMY: &str = "setpoint, reads a Pod, `Compact` with room for all decoded";
const READS_DECODED: &str = "setpoint, reads a Pod, `Decoded`";
const READS_THREE: &str = "setpoint, reads three fields, `Compact`";
const THEY_READ_WHOLE: &str = "kube-runtime 5, reads a Pod";
const THEY_READ_THREE: &str = "kube-runtime 5 of a struct of three fields, reads them";
const OUR_CACHE: &str = "setpoint, the informer alone";
const THEIR_CACHE: &str = "kube-runtime 5, the reflector alone";

fn subjects() -> Vec<Subject> {
    let ours = ["--kind", "controller", "--stream"];
    let theirs = ["--kind", "kube-controller"];
    let eight = ["--workers", "8"];
    let (whole, three) = (["--look", "whole"], ["--look", "three"]);
    vec![
        Subject::own(OURS[0], &ours),
        Subject::own(THEIRS[0], &theirs),
        Subject::own(OURS[1], &[&ours[..], &eight].concat()),
        Subject::own(THEIRS[1], &[&theirs[..], &eight].concat()),
        Subject::own(UNEXPLAINED, &[&ours[..], &["--no-explain"]].concat()),
        Subject::own(READS_WHOLE, &[&ours[..], &whole].concat()),
        Subject::own(READS_ROOMY, &[&ours[..], &whole, &["--room"]].concat()),
        Subject::own(READS_DECODED, &[&ours[..], &whole, &["--policy", "decoded"]].concat()),
        Subject::own(READS_THREE, &[&ours[..], &three].concat()),
        Subject::own(THEY_READ_WHOLE, &[&theirs[..], &whole].concat()),
        Subject::own(THEY_READ_THREE, &[&theirs[..], &three].concat()),
        Subject::own(OUR_CACHE, &["--kind", "setpoint", "--stream"]),
        Subject::own(THEIR_CACHE, &["--kind", "kube-runtime"]),
    ]
}

/// Takes every measure and writes the tables.
pub(crate) fn measure(args: &Args) -> anyhow::Result<()> {
    let mut latencies = Table::with_verdicts();
    let server = in_process::Server::start()?;
    server.deliveries(&mut latencies)?;
    latency::measure(&server, &mut latencies)?;
    drop(server);
    let mut writes = Table::with_verdicts();
    writes::measure(NEW_OBJECTS, args.rounds, &mut writes)?;

    let mut all: Vec<Measured> = subjects()
        .into_iter()
        .map(|subject| Measured { subject, findings: Vec::new(), heap: None })
        .collect();
    let source = Source::start(args.objects, args.events)?;
    for round in 0..args.rounds {
        for measured in &mut all {
            eprintln!("round {}: {}", round + 1, measured.subject.name);
            measured.findings.extend(source.run(&measured.subject)?);
        }
    }
    for measured in &mut all {
        eprintln!("heap: {}", measured.subject.name);
        let counted = source.run_counted(&measured.subject)?;
        measured.heap = counted.map(|found| found.heap as f64 / found.n_objects as f64);
    }
    drop(source);

    let mut goals = Table::with_verdicts();
    judge(&all, &mut goals);

    let text = format!(
        "{} Command: `cargo xtask bench runtime`. Release builds. {} Pods, then {} MODIFIED events as fast as they are taken, from the source that the \
         informers are measured with (HTTP/1.1 on the loopback address); then {} times all Pods at once, triggered from inside the process. The reconciler does \
         and reads nothing, except in the rows that say so: there it gets its object from the cache and looks at `spec.nodeName`, of the whole Pod or of a \
         struct that declares `metadata.namespace`, `metadata.resourceVersion` and `spec.nodeName` beside the name. Each controller is a process, they take turns, figures are medians of {} rounds; CPU is the process's own, user and system. \
         One worker runs on one thread, eight on two, for both. Each keeps its cache as it does by default (`Compact` here, typed objects there); \
         kube-runtime lists in one piece, which is the faster for it.\n\n{}\n\n{goals}\n\n\
         From a write to an API server in the same process, on one thread, one write at a time; both controllers use the same client.\n\n{latencies}\n\n\
         New objects in a server process of their own, over HTTPS with HTTP/2, created before the controller starts: PodDisruptionBudgets, whose status each \
         reconcile writes if the cache does not show it. Not like for like: controller-runtime's \
         Go runtime has all cores, the others have one thread.\n\n{writes}",
        results::machine()?,
        args.objects,
        args.events,
        10,
        args.rounds,
        table(&all),
    );
    println!("{text}");
    if args.dry { Ok(()) } else { results::write(Some(HEADING), &text) }
}

/// Every process's figures.
fn table(all: &[Measured]) -> String {
    let mut text = String::from(
        "| controller | sync with a reconcile each, CPU per object | CPU per event | events per CPU-second | reconciles of them | triggered: CPU per reconcile | per CPU-second | heap per object |\n|---|---|---|---|---|---|---|---|",
    );
    for measured in all {
        let per_object = measured.median(|found| found.sync_cpu * 1e6 / found.n_objects as f64);
        let (events, triggered) = (measured.events(), measured.triggered());
        let reconciles = measured.median(|found| found.n_calls as f64);
        let of_triggers = if triggered.is_finite() {
            format!("{:.2} µs | {triggered:.0}", 1e6 / triggered)
        } else {
            "– | –".to_owned()
        };
        let heap = measured.heap.map_or("–".to_owned(), |heap| format!("{heap:.0} B"));
        text += &format!(
            "\n| {} | {per_object:.1} µs | {:.1} µs | {events:.0} | {reconciles:.0} | {of_triggers} | {heap} |",
            measured.subject.name,
            1e6 / events,
        );
    }
    text
}

fn judge(all: &[Measured], goals: &mut Table) {
    let find = |name: &str| all.iter().find(|measured| measured.subject.name == name);
    let mut ratio = |what: &str, ours: f64, theirs: f64, goal: Option<f64>| {
        let ratio = ours / theirs;
        let told = goal.map_or("–".to_owned(), |goal| format!("≥ {goal}×"));
        let figure = format!("{ratio:.1}×: {ours:.0} against {theirs:.0}");
        goals.judged(what, figure, &told, goal.map(|goal| ratio >= goal));
    };
    for ((ours, theirs), workers) in OURS.iter().zip(THEIRS).zip(["1 worker", "8 workers"]) {
        let (Some(ours), Some(theirs)) = (find(ours), find(theirs)) else { continue };
        ratio(
            &format!(
                "no-op reconciles per CPU-second from watch events, {workers}: more than kube-runtime"
            ),
            ours.reconciles(),
            theirs.reconciles(),
            Some(5.0),
        );
        ratio(
            &format!(
                "no-op reconciles per CPU-second from a trigger in the process, {workers}: more than kube-runtime"
            ),
            ours.triggered(),
            theirs.triggered(),
            None,
        );
    }
    let reads = [
        (READS_THREE, "three fields", Some(5.0), Some(1.5)),
        // The goals are of a cache that has room for the decoded objects of its readers.
        (READS_ROOMY, "a whole Pod under `Compact` with room for all", Some(1.2), Some(1.0)),
        (READS_WHOLE, "a whole Pod under `Compact`, which has room for one in fifty", None, None),
        (READS_DECODED, "a whole Pod under `Decoded`", None, None),
    ];
    for (ours, what, of_events, of_triggers) in reads {
        let (Some(ours), Some(theirs)) = (find(ours), find(THEY_READ_WHOLE)) else { continue };
        ratio(
            &format!(
                "watch events per CPU-second, each reconcile reads {what}: more than kube-runtime with a Pod"
            ),
            ours.events(),
            theirs.events(),
            of_events,
        );
        ratio(
            &format!(
                "triggered reconciles per CPU-second, each reads {what}: more than kube-runtime with a Pod"
            ),
            ours.triggered(),
            theirs.triggered(),
            of_triggers,
        );
    }
    if let (Some(ours), Some(theirs)) = (find(READS_THREE), find(THEY_READ_THREE)) {
        let what = "each reconcile reads three fields: more than kube-runtime of such a struct";
        ratio(
            &format!("watch events per CPU-second, {what}"),
            ours.events(),
            theirs.events(),
            None,
        );
        ratio(
            &format!("triggered reconciles per CPU-second, {what}"),
            ours.triggered(),
            theirs.triggered(),
            None,
        );
    }
    if let (Some(with), Some(without)) = (find(OURS[0]), find(UNEXPLAINED)) {
        let cost = (without.triggered() / with.triggered() - 1.0) * 100.0;
        let figure = format!("{cost:.1} % of a triggered no-op reconcile");
        goals.judged("what explaining every reconcile costs", figure, "< 3 %", Some(cost < 3.0));
    }
    for (controller, cache) in [(OURS[0], OUR_CACHE), (THEIRS[0], THEIR_CACHE)] {
        let heap = |name| find(name).and_then(|measured| measured.heap);
        if let (Some(with), Some(without)) = (heap(controller), heap(cache)) {
            let what = format!("memory per idle key beyond the cache, {controller}");
            goals.judged(&what, format!("{:.0} B", with - without), "–", None);
        }
    }
}
