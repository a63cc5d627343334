//! The options about the page of metrics, named as kube-apiserver's.

use anyhow::{Context as _, bail};
use clap::Args;
use setpoint::MetricsPageOptions;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Maximum size of the file of allowed values, in bytes.
const FILE_BYTES_MAX: usize = 1024 * 1024;

/// What `/metrics` leaves out.
#[derive(Debug, Args)]
pub(crate) struct MetricOptions {
    /// The only values that a label of a metric has; others are shown as `unexpected`:
    /// `metric,label=value`, with quotation marks around a pair that has several values:
    /// `"apiserver_request_total,code=200,404"`. Several pairs are separated by commas. May be
    /// given several times.
    #[arg(long, value_name = "PAIRS")]
    allow_metric_labels: Vec<String>,
    /// A file of the same in YAML, a line each: `"metric,label": "value,value"`. Read at start.
    #[arg(long, value_name = "FILE")]
    allow_metric_labels_manifest: Option<PathBuf>,
    /// Metrics to leave out, separated by commas.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    disabled_metrics: Vec<String>,
}

impl MetricOptions {
    pub(crate) fn page(&self) -> anyhow::Result<MetricsPageOptions> {
        if let Some(name) = self.disabled_metrics.iter().find(|name| !is_name(name, true)) {
            bail!("--disabled-metrics: {name:?} is no name of a metric");
        }
        let given: Vec<(String, String)> = match &self.allow_metric_labels_manifest {
            Some(_) if !self.allow_metric_labels.is_empty() => {
                bail!(
                    "--allow-metric-labels and --allow-metric-labels-manifest exclude each other"
                );
            }
            Some(path) => read(path)
                .with_context(|| format!("use --allow-metric-labels-manifest {}", path.display()))?
                .into_iter()
                .collect(),
            None => {
                let pairs = self.allow_metric_labels.iter().map(|text| pairs(text));
                pairs.collect::<anyhow::Result<Vec<_>>>()?.into_iter().flatten().collect()
            }
        };
        let mut options = MetricsPageOptions::default().disable(&self.disabled_metrics);
        for (key, values) in given {
            let Some((metric, label)) =
                key.split_once(',').filter(|(m, l)| is_name(m, true) && is_name(l, false))
            else {
                bail!("allowed values of labels: {key:?} is not of the form `metric,label`");
            };
            options = options.allow(metric, label, values.split(','));
        }
        Ok(options)
    }
}

/// Whether it is a name of a metric or of a label.
fn is_name(name: &str, is_metric: bool) -> bool {
    let is_part = |c: char| c.is_ascii_alphabetic() || c == '_' || is_metric && c == ':';
    name.starts_with(is_part) && name.chars().all(|c| is_part(c) || c.is_ascii_digit())
}

fn read(path: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let text = setpoint_small_file::read_text(path, FILE_BYTES_MAX)?;
    serde_saphyr::from_str(&text).context("read it as a map of texts")
}

/// The pairs of an option, as pflag reads a map: a record of CSV, unless there is one pair.
fn pairs(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let fields = match text.matches('=').count() {
        1 => vec![text.trim_matches('"').to_owned()],
        _ => fields(text),
    };
    let pair = |field: String| match field.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => bail!("--allow-metric-labels: {field} must be formatted as key=value"),
    };
    fields.into_iter().map(pair).collect()
}

/// The fields of a record of CSV.
fn fields(text: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let (mut is_quoted, mut chars) = (false, text.chars().peekable());
    while let Some(c) = chars.next() {
        let Some(field) = fields.last_mut() else { break };
        match c {
            '"' if is_quoted && chars.peek() == Some(&'"') => {
                chars.next();
                field.push('"');
            }
            '"' if is_quoted || field.is_empty() => is_quoted = !is_quoted,
            ',' if !is_quoted => fields.push(String::new()),
            c => field.push(c),
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Program {
        #[command(flatten)]
        metrics: MetricOptions,
    }

    fn page(arguments: &[&str]) -> Result<MetricsPageOptions, String> {
        let line = std::iter::once("setpoint").chain(arguments.iter().copied());
        let program = <Program as clap::Parser>::try_parse_from(line).unwrap();
        program.metrics.page().map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn allowed_values_are_read_as_by_kube_apiserver() {
        let one = MetricsPageOptions::default().allow("a", "x", ["1", "2"]);
        assert_eq!(page(&["--allow-metric-labels=a,x=1,2"]), Ok(one.clone()));
        assert_eq!(page(&[r#"--allow-metric-labels="a,x=1,2""#]), Ok(one.clone()));
        let two = one.clone().allow("b", "y", [""]);
        assert_eq!(page(&[r#"--allow-metric-labels="a,x=1,2","b,y=""#]), Ok(two.clone()));
        assert_eq!(
            page(&["--allow-metric-labels=a,x=1,2", "--allow-metric-labels=b,y="]),
            Ok(two.clone())
        );
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("labels.yaml");
        std::fs::write(&file, "\"a,x\": \"1,2\"\n\"b,y\": \"\"\n").unwrap();
        let manifest = format!("--allow-metric-labels-manifest={}", file.display());
        assert_eq!(page(&[&manifest]), Ok(two));
        let both = page(&[&manifest, "--allow-metric-labels=a,x=1"]).unwrap_err();
        assert!(both.contains("exclude each other"), "{both}");
        let error = page(&["--allow-metric-labels=a=1"]).unwrap_err();
        assert!(error.contains("not of the form"), "{error}");
        let error = page(&["--allow-metric-labels=a,x"]).unwrap_err();
        assert!(error.contains("must be formatted as key=value"), "{error}");
    }

    #[test]
    fn disabled_metrics_have_names_of_metrics() {
        let disabled = MetricsPageOptions::default().disable(["a:b", "c_total"]);
        assert_eq!(page(&["--disabled-metrics=a:b,c_total"]), Ok(disabled));
        assert!(page(&["--disabled-metrics=1a"]).unwrap_err().contains("no name of a metric"));
    }
}
