//! Files of variables in volumes of pods (`fileKeyRef`).
//!
//! A line is `NAME='value'`: a value is between single quotes, may have several lines, and nothing
//! in it is replaced. Blank lines and lines that begin with `#` count for nothing, as does a
//! comment behind a value. Kubelets read the same.

use setpoint_small_file::SmallFileError;
use std::path::PathBuf;

/// The longest file: 1 MiB, as of a ConfigMap.
const FILE_BYTES_MAX: usize = 1024 * 1024;

/// Why a variable cannot be read from a file.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum EnvFileError {
    /// The file is not there, or cannot be read.
    #[error("open {path}: {cause}", path = path.display())]
    Unreadable { path: PathBuf, cause: String },
    /// It is longer than [`FILE_BYTES_MAX`].
    #[error("{path} has more than {FILE_BYTES_MAX} bytes", path = path.display())]
    TooLong { path: PathBuf },
    /// A line, counted from one, has no variable.
    #[error("line {line}: {fault}")]
    Line { line: usize, fault: &'static str },
}

/// The value of a variable in a file; none if it has none or an empty one.
///
/// # Errors
///
/// The file cannot be read, or a line before the variable is malformed.
pub(crate) async fn read(path: PathBuf, key: &str) -> Result<Option<String>, EnvFileError> {
    let bytes = setpoint_small_file::read_async(&path, FILE_BYTES_MAX).await;
    let bytes = bytes.map_err(|error| match error {
        SmallFileError::Read { path, source } => {
            EnvFileError::Unreadable { path, cause: source.to_string() }
        }
        SmallFileError::TooLong { path, .. } => EnvFileError::TooLong { path },
    })?;
    let value = find(&String::from_utf8_lossy(&bytes), key)?;
    Ok(value.filter(|value| !value.is_empty()))
}

fn find(text: &str, key: &str) -> Result<Option<String>, EnvFileError> {
    const BLANK: [char; 2] = [' ', '\t'];
    let mut lines = text.lines().enumerate();
    while let Some((idx, line)) = lines.next() {
        let wrong = |fault| EnvFileError::Line { line: idx + 1, fault };
        let line = line.trim_start_matches(BLANK);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').ok_or(wrong("missing '='"))?;
        if name.is_empty() {
            return Err(wrong("empty variable name"));
        }
        if name.ends_with(BLANK) {
            return Err(wrong("whitespace before '=' is not allowed"));
        }
        // As in a shell, such a variable is empty.
        if value.starts_with(BLANK) {
            if name == key {
                return Ok(None);
            }
            continue;
        }
        let quoted = value.strip_prefix('\'');
        let mut rest = quoted.ok_or(wrong("value must be enclosed in single quotes"))?;
        let mut found = String::new();
        let after = loop {
            if let Some((end, after)) = rest.split_once('\'') {
                found.push_str(end);
                break after;
            }
            found.push_str(rest);
            found.push('\n');
            (_, rest) = lines.next().ok_or(wrong("unclosed single quote"))?;
        };
        let after = after.trim_start_matches(BLANK);
        if !after.is_empty() && !after.starts_with('#') {
            return Err(wrong("unexpected content after closing quote"));
        }
        if name == key {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# comment\n\n  A='1' # one\nB='two\nlines'\nC= 'x'\nD=''\nE='$A \"'\n";

    #[test]
    fn values_are_quoted_and_may_have_lines() {
        let found = |key: &str| find(FILE, key).unwrap();
        assert_eq!(found("A").as_deref(), Some("1"));
        assert_eq!(found("B").as_deref(), Some("two\nlines"));
        assert_eq!(found("C"), None);
        assert_eq!(found("D").as_deref(), Some(""));
        assert_eq!(found("E").as_deref(), Some("$A \""));
        assert_eq!(found("F"), None);
    }

    #[test]
    fn a_malformed_line_is_named() {
        for (text, line, fault) in [
            ("A='1'\nB", 2, "missing '='"),
            ("='1'", 1, "empty variable name"),
            ("A ='1'", 1, "whitespace before '=' is not allowed"),
            ("A=1", 1, "value must be enclosed in single quotes"),
            ("A='1\n2", 1, "unclosed single quote"),
            ("A='1' 2", 1, "unexpected content after closing quote"),
        ] {
            assert_eq!(find(text, "A2"), Err(EnvFileError::Line { line, fault }), "{text}");
        }
    }

    #[tokio::test]
    async fn a_file_that_is_missing_or_endless_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("env");
        assert!(matches!(read(path.clone(), "A").await, Err(EnvFileError::Unreadable { .. })));
        std::fs::write(&path, FILE).unwrap();
        assert_eq!(read(path.clone(), "A").await, Ok(Some("1".to_owned())));
        assert_eq!(read(path, "D").await, Ok(None));
        let endless = PathBuf::from("/dev/zero");
        assert!(matches!(read(endless, "A").await, Err(EnvFileError::TooLong { .. })));
    }
}
