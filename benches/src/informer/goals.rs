//! The goals, and whether they are met.
use super::runs::{self, Runs, name, reader, sized};
use super::{SIZES, runs::POLICIES};
use crate::client::Findings;
use crate::table::Table;

const MIB: f64 = 1024.0 * 1024.0;

/// Writes a row for each goal whose figures are there.
pub(super) fn judge(runs: &Runs, table: &mut Table) {
    sync(runs, table);
    heap(runs, table);
    peak(runs, table);
    events(runs, table);
    relist(runs, table);
    holds(runs, table);
    reads(runs, table);
    sizes(runs, table);
}

fn relist(runs: &Runs, table: &mut Table) {
    let (sync, again) = (
        runs.median(&name("compact", false), sync_cpu),
        runs.median(runs::RELIST, |f| f.relist_cpu),
    );
    if let (Some(sync), Some(again)) = (sync, again) {
        let what = "a list of the same objects again, `Compact`: CPU against the first";
        table.judged(what, format!("{:.2}×", again / sync), "≤ 1×", Some(again <= sync));
    }
}

/// The bound of a turn is 64 objects, of which each may take fifty microseconds in an index
/// function. The runtime looks at sockets and timers after at most 61 turns.
fn holds(runs: &Runs, table: &mut Table) {
    for (n, what) in ["the sync", "a list again", "events"].into_iter().enumerate() {
        let figure = |of: usize| {
            runs.median(runs::HOLDS, |f: &Findings| f.holds.map_or(0.0, |holds| holds[n][of]))
        };
        if let Some(longest) = figure(0) {
            let what = format!("the longest wait of another task that is ready, `Compact`: {what}");
            let is_met = longest <= 3e-3;
            table.judged(&what, format!("{:.2} ms", longest * 1e3), "≤ 3 ms", Some(is_met));
        }
        if let Some(longest) = figure(1) {
            let what = format!("the longest wait of one for a socket or timer, `Compact`: {what}");
            table.row(&what, format!("{:.2} ms", longest * 1e3), "–");
        }
    }
}

fn sync_cpu(findings: &Findings) -> f64 {
    findings.sync_cpu
}

fn sync_wall(findings: &Findings) -> f64 {
    findings.sync_wall
}

fn event_cpu(findings: &Findings) -> f64 {
    findings.events_cpu / findings.n_events.max(1) as f64
}

/// How often the second fits into the first, as a row with the least it should be.
fn times_less(
    runs: &Runs,
    table: &mut Table,
    what: &str,
    (ours, theirs): (&str, &str),
    figure: fn(&Findings) -> f64,
    goal: Option<f64>,
) {
    let (Some(ours), Some(theirs)) = (runs.median(ours, figure), runs.median(theirs, figure))
    else {
        return;
    };
    let ratio = theirs / ours;
    let label = goal.map_or("–".to_owned(), |goal| format!("≥ {goal}×"));
    table.judged(what, format!("{ratio:.1}×"), &label, goal.map(|goal| ratio >= goal));
}

fn sync(runs: &Runs, table: &mut Table) {
    let compact = name("compact", false);
    for (peer, label) in [
        (runs::GO, "client-go by LIST"),
        (runs::GO_STREAM, "client-go by streamed list"),
        (runs::KUBE, "kube-runtime by LIST"),
        (runs::KUBE_STREAM, "kube-runtime by streamed list"),
    ] {
        let what = format!("initial sync, `Compact`: CPU less than {label}");
        times_less(runs, table, &what, (&compact, peer), sync_cpu, Some(10.0));
        let what = format!("initial sync, `Compact`: wall time less than {label}");
        times_less(runs, table, &what, (&compact, peer), sync_wall, None);
    }
    for (peer, label) in [(runs::GO, "client-go"), (runs::KUBE, "kube-runtime")] {
        let what = format!("initial sync, `Compact`, both by LIST: CPU less than {label}");
        times_less(runs, table, &what, (runs::COMPACT_LIST, peer), sync_cpu, Some(10.0));
    }
    for (own, floor, label) in [
        (&*compact, runs::FLOOR_STREAM, "streamed list"),
        (runs::COMPACT_LIST, runs::FLOOR_LIST, "LIST"),
    ] {
        for (figure, unit) in [(sync_cpu as fn(&Findings) -> f64, "CPU"), (sync_wall, "wall time")]
        {
            if let (Some(own), Some(floor)) = (runs.median(own, figure), runs.median(floor, figure))
            {
                let ratio = own / floor;
                table.judged(
                    &format!("initial sync, `Compact`, {label}: {unit} against reading the bytes and finding the ends"),
                    format!("{ratio:.1}×"),
                    "≤ 3×",
                    Some(ratio <= 3.0),
                );
            }
        }
    }
    let decoded = name("decoded", false);
    for (peer, label) in [(runs::KUBE, "LIST"), (runs::KUBE_STREAM, "streamed list")] {
        let what = format!("initial sync, `Decoded`: CPU less than kube-runtime by {label}");
        times_less(runs, table, &what, (&decoded, peer), sync_cpu, Some(1.5));
    }
    let what = "initial sync, `Decoded`, both pruned: CPU less than kube-runtime by LIST";
    let pair = (&*name("decoded", true), runs::KUBE_PRUNED);
    times_less(runs, table, what, pair, sync_cpu, None);
}

fn heap(runs: &Runs, table: &mut Table) {
    let kib = |bytes: f64| format!("{:.2} KiB", bytes / 1024.0);
    let json = |own: &str| runs.median(own, |f| f.json_bytes as f64 / f.n_objects as f64);
    for is_pruned in [false, true] {
        let own = name("compact", is_pruned);
        if let (Some(heap), Some(json)) = (runs.heap(&own), json(&own)) {
            let ratio = heap / json;
            table.judged(
                &format!("heap per object, {own}, against its JSON ({})", kib(json)),
                format!("{} = {ratio:.2}×", kib(heap)),
                "≤ 1.1×",
                Some(ratio <= 1.1),
            );
        }
    }
    for (policy, is_pruned, most) in
        [("compressed", false, 0.8), ("compressed", true, 0.8), ("metadata", false, 0.6)]
    {
        let own = name(policy, is_pruned);
        if let Some(heap) = runs.heap(&own) {
            let what = format!("heap per object, {own}");
            let is_met = heap <= most * 1024.0;
            table.judged(&what, kib(heap), &format!("≤ {most} KiB"), Some(is_met));
        }
    }
    for (own, peer) in
        [(name("decoded", false), runs::KUBE), (name("decoded", true), runs::KUBE_PRUNED)]
    {
        if let (Some(heap), Some(theirs)) = (runs.heap(&own), runs.heap(peer)) {
            let what = format!("heap per object, {own}, against {peer}");
            let figure = format!("{} = {:.2}×", kib(heap), heap / theirs);
            table.judged(&what, figure, &format!("≤ {}", kib(theirs)), Some(heap <= theirs));
        }
    }
    if let (Some(go), Some(own)) = (runs.heap(runs::GO), runs.heap(&name("compact", false))) {
        let what = "heap per object, `Compact`: less than client-go";
        table.judged(what, format!("{:.1}×", go / own), "–", None);
    }
}

fn peak(runs: &Runs, table: &mut Table) {
    let above = |own: &str| runs.median(own, |f| f.rss_peak.saturating_sub(f.rss_start) as f64);
    let streamed = [name("compact", false), name("compact", true)];
    for own in streamed.iter().map(String::as_str).chain([runs::COMPACT_LIST]) {
        if let (Some(peak), Some(json)) = (above(own), runs.median(own, |f| f.json_bytes as f64)) {
            let ratio = peak / json;
            table.judged(
                &format!("peak resident memory of the sync, {own}, against the cached bytes"),
                format!("{:.0} MiB = {ratio:.2}×", peak / MIB),
                "≤ 1.3×",
                Some(ratio <= 1.3),
            );
        }
    }
    for is_pruned in [false, true] {
        let own = name("compressed", is_pruned);
        if let Some(peak) = above(&own) {
            let what = format!("peak resident memory of the sync, {own}");
            let figure = format!("{:.0} MiB", peak / MIB);
            table.judged(&what, figure, "≤ 100 MiB", Some(peak <= 100.0 * MIB));
        }
    }
}

fn events(runs: &Runs, table: &mut Table) {
    for (peer, label, goal) in
        [(runs::GO, "client-go", Some(10.0)), (runs::KUBE, "kube-runtime", Some(10.0))]
    {
        for policy in POLICIES {
            let what =
                format!("events per CPU-second, `{}`: more than {label}", runs::title(policy));
            let goal = goal.filter(|_| policy == "compact");
            times_less(runs, table, &what, (&name(policy, false), peer), event_cpu, goal);
        }
    }
}

fn reads(runs: &Runs, table: &mut Table) {
    type Reads = fn(&Findings) -> Option<[u64; 2]>;
    let few: Reads = |f| f.reads_of_few;
    let all: Reads = |f| f.reads_of_all;
    let decoded = runs.median(&reader("decoded"), |f| f.reads_of_few.map_or(0, |r| r[0]) as f64);
    for policy in POLICIES {
        for (reads, label, is_goal) in [
            (few, "a warm working set of 64 objects", policy == "compact"),
            (all, "all objects in turn: nothing is warm", false),
        ] {
            let of =
                |n: usize| runs.median(&reader(policy), |f| reads(f).map_or(0, |r| r[n]) as f64);
            let (Some(p50), Some(p99)) = (of(0), of(1)) else { continue };
            let what = format!("{}, {label}", reader(policy));
            let mut figure = format!("{:.2} µs (p99 {:.2} µs)", p50 / 1e3, p99 / 1e3);
            match decoded {
                Some(decoded) if is_goal => {
                    let ratio = p50 / decoded;
                    figure += &format!(" = {ratio:.1}×");
                    table.judged(&what, figure, "≤ 2× `Decoded`", Some(ratio <= 2.0));
                }
                _ => table.judged(&what, figure, "–", None),
            }
        }
    }
}

fn sizes(runs: &Runs, table: &mut Table) {
    let compact = name("compact", false);
    let costs: Vec<(u64, f64)> = SIZES
        .into_iter()
        .filter_map(|size| Some((size, runs.median(&sized(&compact, size), event_cpu)?)))
        .collect();
    if let (Some(least), Some(most)) = (
        costs.iter().map(|(_, cost)| *cost).reduce(f64::min),
        costs.iter().map(|(_, cost)| *cost).reduce(f64::max),
    ) {
        let label: Vec<String> =
            costs.iter().map(|(size, cost)| format!("{:.1} µs at {size}", cost * 1e6)).collect();
        let ratio = most / least;
        table.judged(
            "CPU per event by number of objects, `Compact`",
            format!("{}: {ratio:.2}×", label.join(", ")),
            "flat within 1.3×",
            Some(ratio <= 1.3),
        );
    }
    let million = sized(&name("compressed", false), 1_000_000);
    if let Some(peak) = runs.median(&million, |f| f.rss_peak.max(f.rss_end) as f64) {
        table.judged(
            "1,000,000 objects, `Compressed`: the highest resident memory, program and all",
            format!("{:.2} GiB", peak / MIB / 1024.0),
            "≤ 1 GiB",
            Some(peak <= 1024.0 * MIB),
        );
    }
}
