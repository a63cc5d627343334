//! Kubernetes' static token file: CSV with token, user name, user uid and, quoted, group names.

use setpoint_apiserver::listen::{CertificateError, read_file};
use setpoint_apiserver::{Credentials, Identity};
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenFileError {
    /// The file cannot be read.
    #[error("read the file of tokens")]
    Read(#[from] CertificateError),
    /// The file is not UTF-8.
    #[error("{} is not UTF-8", path.display())]
    NotText {
        /// The file.
        path: PathBuf,
    },
    /// A line is not a valid record. Its content is not shown, because it may contain a token.
    #[error("{} line {line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line number, from one.
        line: usize,
        /// The problem.
        why: &'static str,
    },
}

/// Adds the tokens of a file to the accepted credentials.
pub(super) fn read(path: &Path, accepted: Credentials) -> Result<Credentials, TokenFileError> {
    let text = String::from_utf8(read_file(path)?)
        .map_err(|_| TokenFileError::NotText { path: path.to_owned() })?;
    let mut users = HashMap::new();
    for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let failed = |why| TokenFileError::Line { path: path.to_owned(), line: n + 1, why };
        let fields = fields(line).map_err(failed)?;
        // As in the reference, an empty field is one group without a name.
        let (token, user, uid, groups) = match &fields[..] {
            [token, user, uid] => (token, user, uid, Vec::new()),
            [token, user, uid, groups, ..] => (token, user, uid, groups.split(',').collect()),
            _ => return Err(failed("a token, a user name and a uid are wanted")),
        };
        if token.is_empty() {
            tracing::warn!(file = %path.display(), line = n + 1, "ignored a line without a token");
            continue;
        }
        let user = Identity { uid: uid.as_str().into(), ..Identity::new(user, groups) };
        if users.insert(token.clone(), user).is_some() {
            tracing::warn!(file = %path.display(), line = n + 1, "a token occurs twice: the last line is used");
        }
    }
    Ok(users.into_iter().fold(accepted, |accepted, (token, user)| accepted.token(&token, user)))
}

/// Splits a line of CSV into fields. A quote within quotes is doubled.
fn fields(line: &str) -> Result<Vec<String>, &'static str> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let mut field = String::new();
        if let Some(mut quoted) = rest.strip_prefix('"') {
            loop {
                let (before, after) = quoted.split_once('"').ok_or("a quote is not closed")?;
                field.push_str(before);
                let Some(behind) = after.strip_prefix('"') else {
                    rest = after;
                    break;
                };
                field.push('"');
                quoted = behind;
            }
            if !(rest.is_empty() || rest.starts_with(',')) {
                return Err("text after a closing quote");
            }
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            field.push_str(&rest[..end]);
            rest = &rest[end..];
            if field.contains('"') {
                return Err("a quote in a field that does not start with one");
            }
        }
        fields.push(field);
        match rest.strip_prefix(',') {
            Some(behind) => rest = behind,
            None => return Ok(fields),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(text: &str) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tokens.csv");
        std::fs::write(&path, text).unwrap();
        match read(&path, Credentials::none()) {
            Ok(credentials) => Ok(format!("{credentials:?}")),
            Err(error) => Err(error.to_string().replace(&path.display().to_string(), "F")),
        }
    }

    #[test]
    fn fields_are_split_as_csv() {
        let split = |line| fields(line).map(|fields| fields.join("|"));
        assert_eq!(split(r#"t,alice,1,"dev,ops""#).unwrap(), "t|alice|1|dev,ops");
        assert_eq!(split(r#"t,"a ""b"" c",,"#).unwrap(), r#"t|a "b" c||"#);
        assert_eq!(split(r#"t,"a"#), Err("a quote is not closed"));
        assert_eq!(split(r#"t,"a"b,c"#), Err("text after a closing quote"));
        assert_eq!(split(r#"t,a"b",c"#), Err("a quote in a field that does not start with one"));
    }

    #[test]
    fn users_are_read_and_invalid_lines_are_reported_by_number() {
        let text = "t1,alice,1,\"dev,ops\"\n\n,nobody,2\nt1,bob,3\n";
        assert_eq!(read_text(text).unwrap(), r#"["bob"]"#);
        assert_eq!(
            read_text("t,a,1\nsecret,b").unwrap_err(),
            "F line 2: a token, a user name and a uid are wanted"
        );
    }
}
