//! Command lines as the replaced programs read them: kube-apiserver with pflag, etcd with Go's own
//! package `flag`.

use setpoint::object::boolean;
use std::ffi::OsString;
use std::fmt::Write as _;

/// What a flag's value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Takes {
    /// `true` or `false`; alone it is `true`, and its value needs a `=`.
    Bool,
    /// Any text, after `=` or as the next argument.
    Value,
}

/// The rules of a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// `--name`; `_` counts as `-`; `-v` and `-h` are short.
    Pflag,
    /// `-name` and `--name` are the same.
    Go,
}

/// Why a command line is refused. `Display` gives the original's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FlagError {
    /// The program has no such flag.
    #[error("{0}")]
    Unknown(String),
    /// A flag without its value.
    #[error("flag needs an argument: {0}")]
    NoValue(String),
    /// A value that is neither true nor false.
    #[error(
        "invalid argument {value:?} for \"--{name}\" flag: strconv.ParseBool: parsing {value:?}: invalid syntax"
    )]
    NotBool {
        /// The flag.
        name: String,
        /// Its value.
        value: String,
    },
    /// Not UTF-8.
    #[error("argument {0:?} is not text")]
    NotText(OsString),
    /// An argument that is no flag.
    #[error("{0}")]
    Positional(String),
}

/// The flags of a command line, in their order, with their values.
pub(crate) type ParsedFlags = Vec<(String, String)>;

/// Reads a command line. `takes` has the program's flags.
///
/// # Errors
///
/// As the original.
pub(crate) fn parse(
    program: &str,
    style: Style,
    arguments: impl IntoIterator<Item = OsString>,
    takes: impl Fn(&str) -> Option<Takes>,
) -> Result<ParsedFlags, FlagError> {
    let mut given = ParsedFlags::new();
    let mut arguments = arguments.into_iter();
    let text = |argument: OsString| argument.into_string().map_err(FlagError::NotText);
    while let Some(argument) = arguments.next() {
        let argument = text(argument)?;
        let stripped = match style {
            Style::Pflag => argument.strip_prefix("--"),
            Style::Go => argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')),
        };
        let flag = match stripped {
            // Ends the flags.
            Some("") if argument == "--" => match arguments.next() {
                Some(rest) => return Err(positional(program, style, &text(rest)?)),
                None => break,
            },
            Some(flag) => flag,
            None => match (style, argument.strip_prefix('-')) {
                (Style::Pflag, Some(short)) if !short.is_empty() => {
                    let (name, value) = shorthand(short, &argument)?;
                    match value {
                        Some(value) => given.push((name.to_owned(), value.to_owned())),
                        None if name == "help" => given.push((name.to_owned(), "true".to_owned())),
                        None => {
                            let value = arguments.next();
                            let value = value.ok_or_else(|| {
                                FlagError::NoValue(format!("'{short}' in {argument}"))
                            })?;
                            given.push((name.to_owned(), text(value)?));
                        }
                    }
                    continue;
                }
                _ => return Err(positional(program, style, &argument)),
            },
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (flag, None),
        };
        let name = match style {
            Style::Pflag => name.replace('_', "-"),
            Style::Go => name.to_owned(),
        };
        let Some(kind) = takes(&name) else {
            return Err(FlagError::Unknown(match style {
                Style::Pflag => format!("unknown flag: --{name}"),
                Style::Go => format!("flag provided but not defined: -{name}"),
            }));
        };
        let value = match (kind, value) {
            (Takes::Bool, None) => "true".to_owned(),
            (Takes::Bool, Some(value)) => match boolean::parse(value) {
                Some(value) => value.to_string(),
                None => return Err(FlagError::NotBool { name, value: value.to_owned() }),
            },
            (Takes::Value, Some(value)) => value.to_owned(),
            (Takes::Value, None) => match arguments.next() {
                Some(value) => text(value)?,
                None => return Err(FlagError::NoValue(argument)),
            },
        };
        given.push((name, value));
    }
    Ok(given)
}

fn positional(program: &str, style: Style, argument: &str) -> FlagError {
    FlagError::Positional(match style {
        Style::Pflag => format!("{program:?} does not take any arguments, got [{argument:?}]"),
        Style::Go => format!("'{argument}' is not a valid flag"),
    })
}

/// The flags with a short form: `-v 4`, `-v=4`, `-v4`, `-h`.
fn shorthand<'a>(
    short: &'a str,
    argument: &str,
) -> Result<(&'static str, Option<&'a str>), FlagError> {
    if short == "h" {
        return Ok(("help", None));
    }
    match short.strip_prefix('v') {
        Some("") => Ok(("v", None)),
        Some(value) => Ok(("v", Some(value.strip_prefix('=').unwrap_or(value)))),
        None => {
            let first = short.chars().next().unwrap_or('-');
            Err(FlagError::Unknown(format!("unknown shorthand flag: '{first}' in {argument}")))
        }
    }
}

/// The page of `--help`: one line for each flag.
pub(crate) fn help<'a>(
    program: &str,
    about: &str,
    flags: impl Iterator<Item = (&'a str, Takes)>,
) -> String {
    let mut flags: Vec<_> = flags.collect();
    flags.sort_by_key(|(name, _)| *name);
    let mut page = format!("{about}\n\nUsage:\n  {program} [flags]\n\nFlags:\n");
    for (name, takes) in flags {
        let value = match takes {
            Takes::Bool => "",
            Takes::Value => " value",
        };
        // Writing to a String cannot fail.
        let _ = writeln!(page, "      --{name}{value}");
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(style: Style, line: &str) -> Result<String, String> {
        let takes = |name: &str| match name {
            "b" | "help" => Some(Takes::Bool),
            "n-n" | "data-dir" | "v" => Some(Takes::Value),
            _ => None,
        };
        let arguments = line.split(' ').filter(|word| !word.is_empty()).map(OsString::from);
        let given = parse("p", style, arguments, takes).map_err(|error| error.to_string())?;
        Ok(given.iter().map(|(name, value)| format!("{name}={value};")).collect())
    }

    #[test]
    fn flags_are_read_as_by_pflag() {
        let ok = |line| read(Style::Pflag, line).unwrap();
        assert_eq!(ok("--n-n=a --n_n b --b --b=F --n-n="), "n-n=a;n-n=b;b=true;b=false;n-n=;");
        assert_eq!(ok("-v 4 -v=2 -v9 -h --"), "v=4;v=2;v=9;help=true;");
        let bad = |line| read(Style::Pflag, line).unwrap_err();
        assert_eq!(bad("--nope=1"), "unknown flag: --nope");
        assert_eq!(bad("--insecure-port=0"), "unknown flag: --insecure-port");
        assert_eq!(bad("--n-n"), "flag needs an argument: --n-n");
        assert_eq!(bad("-data-dir x"), "unknown shorthand flag: 'd' in -data-dir");
        assert_eq!(bad("a"), r#""p" does not take any arguments, got ["a"]"#);
        assert_eq!(
            bad("--b=maybe"),
            r#"invalid argument "maybe" for "--b" flag: strconv.ParseBool: parsing "maybe": invalid syntax"#
        );
    }

    #[test]
    fn flags_are_read_as_by_gos_own_package() {
        let ok = |line| read(Style::Go, line).unwrap();
        assert_eq!(ok("-data-dir x --data-dir=y -b"), "data-dir=x;data-dir=y;b=true;");
        let bad = |line| read(Style::Go, line).unwrap_err();
        assert_eq!(bad("--nope=1"), "flag provided but not defined: -nope");
        assert_eq!(bad("x"), "'x' is not a valid flag");
    }
}
