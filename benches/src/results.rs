//! The document with the results.
//!
//! It has a part without a heading and parts with headings. A benchmark rewrites its own part and
//! leaves the others, some of which are written by hand.

use anyhow::Context;
use std::process::Command;

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/RESULTS.md");

/// Date, cores and other data of the machine.
pub(crate) fn machine() -> anyhow::Result<String> {
    let date = Command::new("date").args(["-u", "+%Y-%m-%d"]).output()?.stdout;
    let cpus = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    Ok(format!(
        "{}, {} cores of {}, shared with other work.",
        String::from_utf8(date)?.trim(),
        std::thread::available_parallelism()?,
        model.trim_start_matches(['\t', ':', ' ']),
    ))
}

/// Replaces the part under `heading` with `text`; without a heading, the part before the first
/// heading.
pub(crate) fn write(heading: Option<&str>, text: &str) -> anyhow::Result<()> {
    let document = std::fs::read_to_string(PATH).context(PATH)?;
    std::fs::write(PATH, replaced(&document, heading, text))?;
    println!("written to benches/RESULTS.md");
    Ok(())
}

fn replaced(document: &str, heading: Option<&str>, text: &str) -> String {
    let line = heading.map_or("# Results\n".to_owned(), |heading| format!("## {heading}\n"));
    let part = format!("{line}\n{}\n", text.trim_end());
    let start = match document.find(&line) {
        Some(start) if start == 0 || document[..start].ends_with('\n') => start,
        _ => return format!("{}\n\n{part}", document.trim_end()),
    };
    let after = start + line.len();
    let end = document[after..].find("\n## ").map_or(document.len(), |end| after + end + 1);
    let rest = &document[end..];
    let gap = if rest.is_empty() { "" } else { "\n" };
    format!("{}{part}{gap}{rest}", &document[..start])
}

#[cfg(test)]
mod tests {
    use super::replaced;

    #[test]
    fn a_part_is_replaced_and_the_others_stay() {
        let document = "# Results\n\nold\n\n## Informer\n\nold\n\n## By hand\n\nkept\n";
        let document = replaced(document, Some("Informer"), "new\n");
        assert_eq!(document, "# Results\n\nold\n\n## Informer\n\nnew\n\n## By hand\n\nkept\n");
        let document = replaced(&document, None, "first");
        assert_eq!(document, "# Results\n\nfirst\n\n## Informer\n\nnew\n\n## By hand\n\nkept\n");
        let document = replaced(&document, Some("By hand"), "last");
        assert!(document.ends_with("new\n\n## By hand\n\nlast\n"), "{document}");
    }

    #[test]
    fn a_part_that_is_not_there_comes_last() {
        assert_eq!(
            replaced("# Results\n\nx\n", Some("New"), "y"),
            "# Results\n\nx\n\n## New\n\ny\n"
        );
    }
}
