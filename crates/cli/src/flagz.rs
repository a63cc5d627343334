//! The options of a command line as `/flagz` shows them. None of them is a secret: those are in
//! files and in variables.

use clap::{ArgMatches, Command};
use std::collections::BTreeMap;

/// Every long option with its value; empty if it has none. Several values are separated by commas.
pub(crate) fn shown(command: &Command, matches: &ArgMatches) -> BTreeMap<String, String> {
    let long = command.get_arguments().filter_map(|arg| Some((arg.get_long()?, arg)));
    let options = long.filter_map(|(name, arg)| {
        // Help has no value.
        let values = matches.try_get_raw(arg.get_id().as_str()).ok()?;
        let values: Vec<_> =
            values.into_iter().flatten().map(|value| value.to_string_lossy()).collect();
        Some((name.to_owned(), values.join(",")))
    });
    options.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[derive(clap::Parser)]
    struct Up {
        #[command(flatten)]
        _options: crate::up::Options,
    }

    #[test]
    fn options_are_shown_with_their_values() {
        let command = Up::command();
        let line = ["up", "--token-auth-file=/f", "--tls-san=a", "--tls-san=b"];
        let matches = command.clone().try_get_matches_from(line).unwrap();
        let shown = shown(&command, &matches);
        let of = |name: &str| shown.get(name).map(String::as_str);
        assert_eq!(of("token-auth-file"), Some("/f"));
        assert_eq!(of("tls-san"), Some("a,b"));
        assert_eq!(of("secure-port"), Some("6443"));
        assert_eq!(of("audit-log-path"), Some(""));
        assert_eq!(of("audit-log-compress"), Some("false"));
        assert_eq!(of("help"), None);
    }
}
