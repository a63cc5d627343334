//! Commands whose end is plain to see.
//!
//! | command | ends |
//! |---|---|
//! | `true`, `echo …`, `printf …`, `date`, `pwd`, `hostname`, `env`, `id`, `:` | at once with 0 |
//! | `false` | at once with 1 |
//! | `exit N` | at once with N |
//! | `sleep N` | after N seconds with 0; never for `infinity` |
//! | `sh -c '…'` of these, joined by `;`, `&&`, `||` or line ends | after their sum, with the code that a shell gives |
//! | no command, with an image whose shell finds no input: `busybox`, `alpine`, … | at once with 0 |
//!
//! Every other command runs until it is stopped.

use serde_json::Value;
use std::time::Duration;

/// What becomes of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It ends by itself.
    Ends {
        /// The time that it runs.
        after: Duration,
        /// Its exit code.
        code: i32,
    },
    /// It runs until it is stopped.
    Runs,
}

/// The longest script that is read, in bytes.
const SCRIPT_BYTES_MAX: usize = 16 << 10;
/// Images that run a shell if there is no command.
const SHELLS: [&str; 7] =
    ["busybox", "alpine", "bash", "debian", "ubuntu", "hello-world", "fedora"];

impl Outcome {
    fn at_once(code: i32) -> Self {
        Self::Ends { after: Duration::ZERO, code }
    }

    /// The outcome of a container.
    pub(crate) fn of_container(container: &Value) -> Self {
        let mut words = strings(&container["command"]);
        words.extend(strings(&container["args"]));
        if words.is_empty() {
            let image = container["image"].as_str().unwrap_or_default();
            let name = image.rsplit('/').next().unwrap_or_default();
            let name = name.split([':', '@']).next().unwrap_or_default();
            return if SHELLS.contains(&name) { Self::at_once(0) } else { Self::Runs };
        }
        Self::of(&words)
    }

    /// The outcome of a command with its arguments.
    pub(crate) fn of(words: &[String]) -> Self {
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        if words.first() == Some(&"exec") {
            words.remove(0);
        }
        let Some((program, arguments)) = words.split_first() else { return Self::at_once(0) };
        match program.rsplit('/').next().unwrap_or_default() {
            "true" | ":" | "echo" | "printf" | "date" | "pwd" | "hostname" | "env" | "id" => {
                Self::at_once(0)
            }
            "false" => Self::at_once(1),
            "exit" => match arguments.first().map(|code| code.parse::<u8>()) {
                None => Self::at_once(0),
                Some(Ok(code)) => Self::at_once(code.into()),
                Some(Err(_)) => Self::Runs,
            },
            "sleep" => arguments
                .iter()
                .try_fold(Duration::ZERO, |sum, text| Some(sum.saturating_add(seconds(text)?)))
                .filter(|_| !arguments.is_empty())
                .map_or(Self::Runs, |after| Self::Ends { after, code: 0 }),
            "sh" | "bash" | "ash" | "dash" => match arguments {
                [flag, script, ..] if flag.starts_with('-') && flag.ends_with('c') => {
                    of_script(script, flag.contains('e'))
                }
                _ => Self::Runs,
            },
            // The job of the reference's documentation: digits of pi.
            "perl" if arguments.iter().any(|text| text.starts_with("print ")) => {
                Self::Ends { after: Duration::from_secs(1), code: 0 }
            }
            _ => Self::Runs,
        }
    }
}

fn strings(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// `5`, `0.5`, `2m`; `None` for what never ends or is no time.
fn seconds(text: &str) -> Option<Duration> {
    let (number, unit) = match text.strip_suffix(['s', 'm', 'h', 'd']) {
        Some(number) => (number, text.as_bytes()[number.len()]),
        None => (text, b's'),
    };
    let factor = match unit {
        b'm' => 60.0,
        b'h' => 3600.0,
        b'd' => 86_400.0,
        _ => 1.0,
    };
    let number: f64 = number.parse().ok().filter(|number: &f64| number.is_finite())?;
    Duration::try_from_secs_f64(number * factor).ok()
}

/// The outcome of a shell script. Anything but plain commands runs forever.
fn of_script(script: &str, mut ends_on_error: bool) -> Outcome {
    if script.len() > SCRIPT_BYTES_MAX {
        return Outcome::Runs;
    }
    let Some(commands) = split(script) else { return Outcome::Runs };
    let (mut total, mut last) = (Duration::ZERO, 0);
    for (joint, words) in commands {
        let is_skipped = match joint {
            Joint::Then => false,
            Joint::And => last != 0,
            Joint::Or => last == 0,
        };
        if is_skipped {
            continue;
        }
        match words.first().map(String::as_str) {
            None => continue,
            Some("set") => {
                ends_on_error |=
                    words.iter().any(|word| word.starts_with('-') && word.contains('e'));
                continue;
            }
            Some(_) => {}
        }
        let Outcome::Ends { after, code } = Outcome::of(&words) else { return Outcome::Runs };
        (total, last) = (total.saturating_add(after), code);
        let is_exit = matches!(words[0].as_str(), "exit" | "exec");
        if is_exit || (ends_on_error && code != 0 && joint == Joint::Then) {
            break;
        }
    }
    Outcome::Ends { after: total, code: last }
}

/// How a command follows the one before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Joint {
    Then,
    And,
    Or,
}

/// The simple commands of a script; `None` if it has anything else: variables, pipes, loops.
fn split(script: &str) -> Option<Vec<(Joint, Vec<String>)>> {
    let mut split = Split { commands: vec![(Joint::Then, Vec::new())], ..Split::default() };
    let mut chars = script.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => {
                let word = split.word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        end if end == c => break,
                        '$' | '`' if c == '"' => return None,
                        '\\' if c == '"' => word.push(chars.next()?),
                        other => word.push(other),
                    }
                }
            }
            '\\' => split.word.get_or_insert_default().push(chars.next()?),
            '$' | '`' | '(' | ')' | '{' | '}' | '<' => return None,
            '>' => {
                // The number of a stream is no argument.
                split.word.take_if(|word| word.chars().all(|c| c.is_ascii_digit()));
                split.end_word();
                chars.next_if_eq(&'>');
                chars.next_if_eq(&'&');
                split.is_target = true;
            }
            '&' | '|' => {
                chars.next_if_eq(&c)?;
                split.end_command(if c == '&' { Joint::And } else { Joint::Or });
            }
            ';' | '\n' => split.end_command(Joint::Then),
            '#' if split.word.is_none() => while chars.next_if(|c| *c != '\n').is_some() {},
            c if c.is_whitespace() => split.end_word(),
            c => split.word.get_or_insert_default().push(c),
        }
    }
    split.end_word();
    Some(split.commands)
}

/// The state of [`split`].
#[derive(Default)]
struct Split {
    commands: Vec<(Joint, Vec<String>)>,
    /// The word that is being read.
    word: Option<String>,
    /// The next word is the target of a redirection.
    is_target: bool,
}

impl Split {
    fn end_word(&mut self) {
        let Some(word) = self.word.take() else { return };
        if !std::mem::take(&mut self.is_target)
            && let Some((_, words)) = self.commands.last_mut()
        {
            words.push(word);
        }
    }

    fn end_command(&mut self, joint: Joint) {
        self.end_word();
        self.commands.push((joint, Vec::new()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    fn check(command: Value, ends: Option<(f64, i32)>) {
        let wanted = match ends {
            Some((after, code)) => Outcome::Ends { after: Duration::from_secs_f64(after), code },
            None => Outcome::Runs,
        };
        assert_eq!(Outcome::of_container(&json!({"command": command})), wanted, "{command}");
    }

    #[test]
    fn plain_commands_end_with_their_code() {
        check(json!(["true"]), Some((0.0, 0)));
        check(json!(["/bin/false"]), Some((0.0, 1)));
        check(json!(["sleep", "5"]), Some((5.0, 0)));
        check(json!(["sleep", "0.5", "1m"]), Some((60.5, 0)));
        check(json!(["sleep", "infinity"]), None);
        let long = "18000000000000000000";
        check(json!(["sleep", long]), Some((18e18, 0)));
        let ends = Outcome::Ends { after: Duration::MAX, code: 0 };
        assert_eq!(Outcome::of_container(&json!({"command": ["sleep", long, long]})), ends);
        check(json!(["sleep"]), None);
        check(json!(["nginx", "-g", "daemon off;"]), None);
    }

    #[test]
    fn scripts_of_plain_commands_end_as_in_a_shell() {
        let script = |text: &str| json!(["/bin/sh", "-c", text]);
        check(script("exit 3"), Some((0.0, 3)));
        check(script("echo 'a; b' && sleep 2; exit 4"), Some((2.0, 4)));
        check(script("false || echo \"no\""), Some((0.0, 0)));
        check(script("true && false"), Some((0.0, 1)));
        check(script("false; true"), Some((0.0, 0)));
        check(script("set -e; false; sleep 9"), Some((0.0, 1)));
        check(script("echo x > /tmp/f 2>&1\nsleep 1 # done"), Some((1.0, 0)));
        check(script("exec sleep 3"), Some((3.0, 0)));
        for endless in
            ["while true; do sleep 1; done", "exit $X", "a | b", "sleep 1 & wait", "x", "echo 'a"]
        {
            check(script(endless), None);
        }
    }

    #[test]
    fn a_shell_without_input_ends() {
        let outcome = |image: &str| Outcome::of_container(&json!({"image": image}));
        assert_eq!(outcome("docker.io/library/busybox:1.36"), Outcome::at_once(0));
        assert_eq!(outcome("nginx"), Outcome::Runs);
    }
}
