//! Changes of a written page of metrics, in Prometheus' text format or in OpenMetrics.

use super::MetricsPageOptions;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

/// What the value of a label is called that is not among the allowed ones, as by kube-apiserver.
const UNEXPECTED: &str = "unexpected";
/// The family that counts those values.
const UNEXPECTED_TOTAL: &str = "cardinality_enforcement_unexpected_categorizations";
/// Families of the process: nobody resets it.
const PROCESS: &str = "process_";

/// The values of series when they were reset, by their lines without the value.
pub(super) type Baseline = HashMap<String, f64>;

/// A family while it is read.
#[derive(Debug)]
struct Family<'p> {
    /// The lines before its samples.
    about: Vec<&'p str>,
    /// The name in Prometheus' text format.
    name: String,
    is_cumulative: bool,
    samples: Vec<Sample<'p>>,
}

/// A line: `name{labels} value`.
#[derive(Debug, Clone)]
struct Sample<'p> {
    name: &'p str,
    labels: Vec<(&'p str, &'p str)>,
    value: &'p str,
}

impl<'p> Sample<'p> {
    /// `None`: the line has another form.
    fn parse(line: &'p str) -> Option<Self> {
        let Some((name, rest)) = line.split_once('{') else {
            let (name, value) = line.split_once(' ')?;
            return Some(Self { name, labels: Vec::new(), value });
        };
        let mut labels = Vec::new();
        let mut rest = rest;
        loop {
            if let Some(value) = rest.strip_prefix("} ") {
                return Some(Self { name, labels, value });
            }
            rest = rest.strip_prefix(',').unwrap_or(rest);
            let (label, quoted) = rest.split_once("=\"")?;
            let end = end_of_quoted(quoted)?;
            labels.push((label, &quoted[..end]));
            rest = &quoted[end + 1..];
        }
    }

    /// The line without the value.
    fn key(&self) -> String {
        let mut key = self.name.to_owned();
        for (n, (label, value)) in self.labels.iter().enumerate() {
            let start = if n == 0 { '{' } else { ',' };
            // Writing to a string does not fail.
            _ = write!(key, "{start}{label}=\"{value}\"");
        }
        if !self.labels.is_empty() {
            key.push('}');
        }
        key
    }

    /// The labels of its series: without the bound of a bucket.
    fn series(&self) -> Vec<(&'p str, &'p str)> {
        self.labels.iter().filter(|(label, _)| *label != "le").copied().collect()
    }

    /// Whether it says how often its series has counted.
    fn is_count(&self, family: &str) -> bool {
        match self.name.strip_prefix(family) {
            Some("") => true,
            Some(rest) => rest == "_count",
            None => false,
        }
    }
}

/// Where a quoted text ends.
fn end_of_quoted(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.char_indices().find_map(|(at, c)| match c {
        '"' if !is_escaped => Some(at),
        c => {
            is_escaped = c == '\\' && !is_escaped;
            None
        }
    })
}

/// The page with the labels and families that the options allow, and with counters and histograms
/// as counted since they were reset. A series that has counted nothing since then is left out.
pub(super) fn adapt(page: &str, options: &MetricsPageOptions, baseline: &Baseline) -> String {
    let mut text = String::with_capacity(page.len());
    let is_openmetrics = page.ends_with("# EOF\n");
    let mut n_unexpected = 0.0;
    for mut family in families(page) {
        if options.disabled.contains(&family.name) {
            continue;
        }
        let (limited, n) = limit(&mut family, options);
        n_unexpected += n;
        family.about.iter().for_each(|line| text.extend([line, "\n"]));
        write(&mut text, &family, &limited, baseline);
    }
    if !options.allowed.is_empty() {
        let kind = if is_openmetrics { "" } else { "_total" };
        // Writing to a string does not fail.
        _ = write!(
            text,
            "# HELP {UNEXPECTED_TOTAL}{kind} Uses of labels with values that are not allowed\n\
             # TYPE {UNEXPECTED_TOTAL}{kind} counter\n{UNEXPECTED_TOTAL}_total {n_unexpected}\n"
        );
    }
    if is_openmetrics {
        text.push_str("# EOF\n");
    }
    text
}

/// The present values of all series, to be a baseline.
pub(super) fn baseline(page: &str, options: &MetricsPageOptions) -> Baseline {
    let mut baseline = Baseline::new();
    for mut family in families(page) {
        let (limited, _) = limit(&mut family, options);
        let is_reset = family.is_cumulative && !family.name.starts_with(PROCESS);
        let samples = family.samples.iter().filter(|_| is_reset);
        // A series without labels is not reset, as there.
        for sample in samples.filter(|sample| !sample.series().is_empty()) {
            let key = sample.key();
            let value = limited.get(&key).copied().or_else(|| sample.value.parse().ok());
            baseline.extend(value.map(|value| (key, value)));
        }
    }
    baseline
}

/// The families of a page.
fn families(page: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    let mut about = Vec::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            about.push(line);
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, ""));
            let mut name = name.to_owned();
            if kind == "counter" && !name.ends_with("_total") {
                name.push_str("_total");
            }
            let is_cumulative = ["counter", "histogram", "unknown", "untyped"].contains(&kind);
            let about = std::mem::take(&mut about);
            families.push(Family { about, name, is_cumulative, samples: Vec::new() });
        } else if line.starts_with('#') {
            if line != "# EOF" {
                about.push(line);
            }
        } else if let Some(family) = families.last_mut() {
            family.samples.extend(Sample::parse(line));
        }
    }
    families
}

/// Replaces values of labels that are not allowed, and joins the series that are one then. Returns
/// the sums of those, and how often a value that is not allowed was counted.
fn limit(family: &mut Family<'_>, options: &MetricsPageOptions) -> (HashMap<String, f64>, f64) {
    let (mut sums, mut n_unexpected) = (HashMap::new(), 0.0);
    let Some(allowed) = options.allowed.get(&family.name) else { return (sums, n_unexpected) };
    for sample in &mut family.samples {
        let n =
            if sample.is_count(&family.name) { sample.value.parse().unwrap_or(0.0) } else { 0.0 };
        for (label, value) in &mut sample.labels {
            if allowed.get(*label).is_some_and(|allowed| !allowed.contains(*value)) {
                *value = UNEXPECTED;
                n_unexpected += n;
            }
        }
    }
    let mut joined: Vec<Sample<'_>> = Vec::new();
    for sample in family.samples.drain(..) {
        let value = sample.value.parse().unwrap_or(0.0);
        let sum = sums.entry(sample.key()).or_insert_with(|| {
            joined.push(sample.clone());
            0.0
        });
        *sum += value;
    }
    family.samples = joined;
    (sums, n_unexpected)
}

/// Writes the samples of a family.
fn write(
    text: &mut String,
    family: &Family<'_>,
    limited: &HashMap<String, f64>,
    baseline: &Baseline,
) {
    let value = |sample: &Sample<'_>, key: &str| {
        let present = limited.get(key).copied().or_else(|| sample.value.parse().ok());
        present.map(|value| value - baseline.get(key).copied().unwrap_or_default())
    };
    let mut is_idle: BTreeMap<Vec<(&str, &str)>, bool> = BTreeMap::new();
    if !baseline.is_empty() {
        for sample in family.samples.iter().filter(|sample| sample.is_count(&family.name)) {
            let key = sample.key();
            let has_none = value(sample, &key).is_some_and(|value| value <= 0.0);
            is_idle.insert(sample.series(), baseline.contains_key(&key) && has_none);
        }
    }
    for sample in &family.samples {
        if is_idle.get(&sample.series()) == Some(&true) {
            continue;
        }
        let key = sample.key();
        let is_changed = limited.contains_key(&key) || baseline.contains_key(&key);
        match value(sample, &key).filter(|_| is_changed) {
            // Writing to a string does not fail.
            Some(value) => _ = writeln!(text, "{key} {value}"),
            None => text.extend([&key, " ", sample.value, "\n"]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = r##"# HELP a_total A.
# TYPE a_total counter
a_total{code="200",verb="GET"} 3
a_total{code="404",verb="GET"} 2
a_total{code="a\"},b",verb="PUT"} 1
# HELP b B.
# TYPE b gauge
b{kind="x"} 4
# HELP c_seconds C.
# TYPE c_seconds histogram
c_seconds_sum{verb="GET"} 1.5
c_seconds_count{verb="GET"} 2
c_seconds_bucket{le="1.0",verb="GET"} 1
c_seconds_bucket{le="+Inf",verb="GET"} 2
c_seconds_sum{verb="PUT"} 0.5
c_seconds_count{verb="PUT"} 1
c_seconds_bucket{le="1.0",verb="PUT"} 1
c_seconds_bucket{le="+Inf",verb="PUT"} 1
# HELP d_total D.
# TYPE d_total counter
d_total 7
# HELP process_cpu_seconds_total E.
# TYPE process_cpu_seconds_total counter
process_cpu_seconds_total 0.25
"##;

    fn options(allowed: &[(&str, &str, &[&str])]) -> MetricsPageOptions {
        allowed.iter().fold(MetricsPageOptions::default(), |options, (family, label, values)| {
            options.allow(*family, *label, values.iter().copied())
        })
    }

    fn samples(page: &str) -> Vec<&str> {
        page.lines().filter(|line| !line.starts_with('#')).collect()
    }

    #[test]
    fn values_that_are_not_allowed_are_counted() {
        let options = options(&[("a_total", "verb", &["GET"]), ("c_seconds", "verb", &[])]);
        let page = adapt(PAGE, &options, &Baseline::new());
        let last: Vec<&str> =
            page.lines().skip_while(|line| !line.contains("cardinality")).collect();
        assert_eq!(
            last,
            [
                "# HELP cardinality_enforcement_unexpected_categorizations_total Uses of labels with values that are not allowed",
                "# TYPE cardinality_enforcement_unexpected_categorizations_total counter",
                // One PUT, and the three times.
                "cardinality_enforcement_unexpected_categorizations_total 4",
            ]
        );
    }

    #[test]
    fn a_page_stays_without_options() {
        assert_eq!(adapt(PAGE, &MetricsPageOptions::default(), &Baseline::new()), PAGE);
        let openmetrics = "# HELP a A.\n# TYPE a counter\na_total{b=\"c\"} 1\n# EOF\n";
        let options = MetricsPageOptions::default();
        assert_eq!(adapt(openmetrics, &options, &Baseline::new()), openmetrics);
    }

    #[test]
    fn values_of_labels_that_are_not_allowed_are_one_series() {
        let options = options(&[
            ("a_total", "code", &["200"]),
            ("c_seconds", "verb", &[]),
            ("b", "kind", &["y"]),
        ]);
        let page = adapt(PAGE, &options, &Baseline::new());
        assert_eq!(
            samples(&page)[..8],
            [
                r#"a_total{code="200",verb="GET"} 3"#,
                r#"a_total{code="unexpected",verb="GET"} 2"#,
                r#"a_total{code="unexpected",verb="PUT"} 1"#,
                r#"b{kind="unexpected"} 4"#,
                r#"c_seconds_sum{verb="unexpected"} 2"#,
                r#"c_seconds_count{verb="unexpected"} 3"#,
                r#"c_seconds_bucket{le="1.0",verb="unexpected"} 2"#,
                r#"c_seconds_bucket{le="+Inf",verb="unexpected"} 3"#,
            ]
        );
    }

    #[test]
    fn counters_with_labels_begin_again_after_a_reset() {
        let options = MetricsPageOptions::default();
        let baseline = baseline(PAGE, &options);
        let page = adapt(PAGE, &options, &baseline);
        assert_eq!(
            samples(&page),
            [r#"b{kind="x"} 4"#, "d_total 7", "process_cpu_seconds_total 0.25"]
        );
        let later = PAGE
            .replace(r#"verb="GET"} 3"#, r#"verb="GET"} 8"#)
            .replace(r#"count{verb="GET"} 2"#, r#"count{verb="GET"} 3"#)
            .replace(r#"sum{verb="GET"} 1.5"#, r#"sum{verb="GET"} 1.75"#)
            .replace(r#"Inf",verb="GET"} 2"#, r#"Inf",verb="GET"} 3"#);
        assert_eq!(
            samples(&adapt(&later, &options, &baseline))[..6],
            [
                r#"a_total{code="200",verb="GET"} 5"#,
                r#"b{kind="x"} 4"#,
                r#"c_seconds_sum{verb="GET"} 0.25"#,
                r#"c_seconds_count{verb="GET"} 1"#,
                r#"c_seconds_bucket{le="1.0",verb="GET"} 0"#,
                r#"c_seconds_bucket{le="+Inf",verb="GET"} 1"#,
            ]
        );
    }

    #[test]
    fn disabled_families_are_left_out() {
        let options = MetricsPageOptions::default().disable(["a_total", "c_seconds", "d_total"]);
        let page = adapt(PAGE, &options, &Baseline::new());
        assert_eq!(samples(&page), [r#"b{kind="x"} 4"#, "process_cpu_seconds_total 0.25"]);
        assert!(!page.contains("a_total"));
    }
}
