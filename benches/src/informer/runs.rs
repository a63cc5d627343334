//! Who is measured, and what was found.
use super::machine;
use crate::client::Findings;
use crate::results;
use std::fmt::Write;

/// Which program a client is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Program {
    /// This one.
    Own,
    /// The Go one, with its streaming lists on or off.
    ClientGo { stream: bool },
}

/// One client as it is measured.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(super) program: Program,
    pub(super) arguments: Vec<String>,
    /// Whether its heap is counted.
    pub(super) heap: bool,
}

impl Subject {
    pub(crate) fn own(name: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        Self { name: name.to_owned(), program: Program::Own, arguments, heap: true }
    }

    fn client_go(name: &str, stream: bool, arguments: &[&str]) -> Self {
        Self { program: Program::ClientGo { stream }, ..Self::own(name, arguments) }
    }

    /// This project's informer as it is by default: a streamed list.
    pub(super) fn setpoint(policy: &str) -> Self {
        Self::own(&name(policy, false), &["--kind", "setpoint", "--policy", policy, "--stream"])
    }

    fn pruned(policy: &str) -> Self {
        let mut subject = Self::setpoint(policy);
        subject.name = name(policy, true);
        subject.arguments.push("--prune".into());
        subject
    }

    pub(super) fn sync_only(mut self) -> Self {
        if !self.arguments.iter().any(|argument| argument == "--sync-only") {
            self.arguments.push("--sync-only".into());
        }
        self
    }

    fn without_heap(mut self) -> Self {
        self.heap = false;
        self
    }

    pub(super) fn is_own(&self) -> bool {
        self.name.starts_with("setpoint") || self.name.starts_with("floor")
    }
}

/// The policies there are, as the client spells them.
pub(super) const POLICIES: [&str; 4] = ["compact", "compressed", "metadata", "decoded"];

pub(super) fn title(policy: &str) -> String {
    let mut letters = policy.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

/// How a row of this project's informer is called.
pub(super) fn name(policy: &str, is_pruned: bool) -> String {
    format!("setpoint `{}`{}", title(policy), if is_pruned { ", pruned" } else { "" })
}

pub(super) const COMPACT_LIST: &str = "setpoint `Compact`, by LIST";
pub(super) const FLOOR_STREAM: &str = "floor: read a streamed list, find its newlines (`memchr`)";
pub(super) const FLOOR_LIST: &str = "floor: read a LIST, find the ends as it arrives (`ValueEnd`)";
pub(super) const KUBE: &str = "kube-runtime 5, by LIST";
pub(super) const KUBE_PRUNED: &str = "kube-runtime 5, pruned, by LIST";
pub(super) const KUBE_STREAM: &str = "kube-runtime 5, streamed list";
pub(super) const KUBE_METADATA: &str = "kube-runtime 5, metadata, by LIST";
pub(super) const GO: &str = "client-go 0.36, by LIST";
pub(super) const GO_PRUNED: &str = "client-go 0.36, pruned, by LIST";
pub(super) const GO_STREAM: &str = "client-go 0.36, streamed list (its default)";

/// Everybody, in the order of the table.
pub(super) fn subjects() -> Vec<Subject> {
    let mut subjects = vec![
        Subject::own(FLOOR_STREAM, &["--kind", "floor", "--stream"]).without_heap(),
        Subject::own(FLOOR_LIST, &["--kind", "floor"]).without_heap(),
    ];
    for policy in POLICIES {
        subjects.push(Subject::setpoint(policy));
        if policy != "metadata" {
            subjects.push(Subject::pruned(policy));
        }
    }
    subjects.extend([
        Subject::own(COMPACT_LIST, &["--kind", "setpoint", "--policy", "compact"]).without_heap(),
        Subject::own(KUBE, &["--kind", "kube-runtime"]),
        Subject::own(KUBE_PRUNED, &["--kind", "kube-runtime", "--prune", "--sync-only"]),
        Subject::own(KUBE_STREAM, &["--kind", "kube-runtime", "--stream", "--sync-only"])
            .without_heap(),
        Subject::own(KUBE_METADATA, &["--kind", "kube-runtime-metadata"]),
        Subject::client_go(GO, false, &[]),
        Subject::client_go(GO_PRUNED, false, &["--prune", "--sync-only"]),
        Subject::client_go(GO_STREAM, true, &["--sync-only"]),
    ]);
    subjects
}

/// Whose reads are timed.
pub(super) fn readers() -> Vec<Subject> {
    POLICIES
        .into_iter()
        .map(|policy| {
            let mut subject = Subject::setpoint(policy).sync_only();
            subject.name = reader(policy);
            subject.arguments.push("--reads".into());
            subject
        })
        .collect()
}

/// What lists again, and what is measured for how long it holds the thread.
pub(super) fn relists() -> [Subject; 2] {
    [(RELIST, "--relist"), (HOLDS, "--holds")].map(|(name, argument)| {
        let mut subject = Subject::setpoint("compact");
        subject.name = name.to_owned();
        subject.arguments.extend([argument.to_owned(), "--relist".to_owned()]);
        subject.arguments.dedup();
        subject
    })
}

pub(super) const RELIST: &str = "`Compact`, listing again";
pub(super) const HOLDS: &str = "`Compact`, beside another task of the thread";

/// How the reads of a policy are called.
pub(super) fn reader(policy: &str) -> String {
    format!("`get` under `{}`", title(policy))
}

/// Who is measured at other numbers of objects.
pub(super) fn at_size(n_objects: u64) -> Vec<Subject> {
    let mut subjects = vec![at(Subject::setpoint("compact"), n_objects)];
    if n_objects == 1_000_000 {
        subjects.push(at(Subject::setpoint("compressed"), n_objects));
    }
    subjects
}

fn at(mut subject: Subject, n_objects: u64) -> Subject {
    subject.name = sized(&subject.name, n_objects);
    subject
}

/// How a client at another number of objects is called.
pub(super) fn sized(name: &str, n_objects: u64) -> String {
    format!("{name}, {n_objects} objects")
}

/// What was found, by client, in the order of the first runs.
#[derive(Debug, Default)]
pub(super) struct Runs(Vec<(String, Vec<Findings>, u64)>);

impl Runs {
    pub(super) fn add(&mut self, subject: &Subject, findings: Option<Findings>) {
        let Some(findings) = findings else { return };
        match self.0.iter_mut().find(|(name, ..)| *name == subject.name) {
            Some((_, all, _)) => all.push(findings),
            None => self.0.push((subject.name.clone(), vec![findings], 0)),
        }
    }

    pub(super) fn add_heap(&mut self, subject: &Subject, findings: Option<Findings>) {
        let known = self.0.iter_mut().find(|(name, ..)| *name == subject.name);
        if let (Some((_, _, heap)), Some(findings)) = (known, findings) {
            *heap = findings.heap;
        }
    }

    /// The median of a figure; `None` when the client was not measured.
    pub(super) fn median(&self, name: &str, figure: impl Fn(&Findings) -> f64) -> Option<f64> {
        let (_, all, _) = self.0.iter().find(|(known, ..)| known == name)?;
        let mut figures: Vec<f64> = all.iter().map(figure).collect();
        figures.sort_unstable_by(f64::total_cmp);
        Some(figures[figures.len() / 2]).filter(|figure| *figure > 0.0)
    }

    /// Bytes on the heap for each object.
    pub(super) fn heap(&self, name: &str) -> Option<f64> {
        let (_, all, counted) = self.0.iter().find(|(known, ..)| known == name)?;
        let own = all.iter().map(|findings| findings.heap).max().unwrap_or(0);
        let heap = if *counted > 0 { *counted } else { own };
        Some(heap as f64 / all.first()?.n_objects as f64).filter(|heap| *heap > 0.0)
    }

    /// The widest spread of the CPU figures, (highest − lowest) / median, and whose it is.
    fn noise(&self) -> (f64, &str) {
        let mut widest = (0.0, "");
        for (name, all, _) in &self.0 {
            let figures = all.iter().map(|findings| findings.sync_cpu);
            let high = figures.clone().fold(0.0, f64::max);
            let low = figures.fold(f64::MAX, f64::min);
            let spread = (high - low) / self.median(name, |f| f.sync_cpu).unwrap_or(f64::MAX);
            if spread > widest.0 {
                widest = (spread, name);
            }
        }
        widest
    }

    /// What stands above the tables.
    pub(super) fn preface(&self, rounds: usize) -> anyhow::Result<String> {
        let (noise, whose) = self.noise();
        let mut text = format!(
            "{} Command: `cargo xtask bench informer`. Release builds; source and client are processes on the same cores, over HTTP/1.1 on the loopback \
             address without TLS and compression, the same bytes for all (`benches/src/pods.rs` says how they are made): 50,000 Pods, then 100,000 MODIFIED \
             events as fast as they are taken. Medians of {rounds} rounds in which the clients took turns; with a million objects, of one. The widest spread \
             of the rounds, (highest − lowest) / median of the CPU of a sync, was {:.0} % ({whose}). CPU is the client process's own, user and system. Heap is \
             counted in separate runs: bytes asked of the allocator and not freed; in Go `HeapAlloc` after a collection. Resident memory is above the start of \
             the sync. This project's clients ask for a streamed list (their default) unless the row says LIST; kube-runtime and client-go are shown with \
             the list that is faster for them, too. Rust clients run on one thread, Go on all cores.\n\n",
            results::machine()?,
            noise * 100.0
        );
        if machine::client_go().is_none() {
            text += "client-go was not measured: its parts could not be installed.\n\n";
        }
        Ok(text)
    }

    /// Every client's figures.
    pub(super) fn table(&self) -> String {
        let mut text = String::from(
            "| client | sync, wall | sync, CPU | CPU per object | heap per object | resident after the sync, peak | events per CPU-second | CPU per event | resident after the events |\n|---|---|---|---|---|---|---|---|---|",
        );
        const MIB: f64 = 1024.0 * 1024.0;
        for (name, all, _) in &self.0 {
            if name.starts_with('`') {
                continue;
            }
            let of = |figure: fn(&Findings) -> f64| self.median(name, figure);
            let told = |value: Option<f64>, unit: &str, digits: usize| {
                value.map_or("–".to_owned(), |value| format!("{value:.digits$}{unit}"))
            };
            let per_event = of(|f| f.events_cpu / f.n_events.max(1) as f64);
            let merged = all.iter().any(|f| f.n_calls < f.n_events);
            let _ = write!(
                text,
                "\n| {name} | {} | {} | {} | {} | {}, {} | {}{} | {} | {} |",
                told(of(|f| f.sync_wall), " s", 2),
                told(of(|f| f.sync_cpu), " s", 2),
                told(of(|f| f.sync_cpu * 1e6 / f.n_objects as f64), " µs", 1),
                told(self.heap(name).map(|heap| heap / 1024.0), " KiB", 2),
                told(of(|f| f.rss_synced.saturating_sub(f.rss_start) as f64 / MIB), "", 0),
                told(of(|f| f.rss_peak.saturating_sub(f.rss_start) as f64 / MIB), " MiB", 0),
                told(per_event.map(|cpu| 1.0 / cpu), "", 0),
                if merged { " (some merged before the handler)" } else { "" },
                told(per_event.map(|cpu| cpu * 1e6), " µs", 1),
                told(of(|f| f.rss_end.saturating_sub(f.rss_start) as f64 / MIB), " MiB", 0),
            );
        }
        text
    }
}
