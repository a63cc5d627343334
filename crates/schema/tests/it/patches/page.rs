//! The counts of a run, and the page.

use super::known::KNOWN;
use super::{Answer, Difference, WAYS};
use serde_json::Value;
use std::collections::BTreeMap;

/// The most differences of one class that are kept.
const KEPT_MAX: usize = 200;

/// What the cases have shown.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Cases, those that the original carries out, and those that it answers now this way and now
    /// that.
    counts: BTreeMap<&'static str, [usize; 3]>,
    /// By way and position in [`KNOWN`].
    known: BTreeMap<(&'static str, usize), Class>,
    unknown: BTreeMap<(&'static str, &'static str, String), Class>,
}

/// Differences of one class.
#[derive(Debug, Default)]
struct Class {
    count: usize,
    kept: Vec<Difference>,
}

impl Class {
    fn add(&mut self, difference: Difference) {
        self.count += 1;
        if self.kept.len() < KEPT_MAX {
            self.kept.push(difference);
        }
    }

    fn shortest(&self) -> Option<&Difference> {
        self.kept.iter().min_by_key(|one| one.question.to_string().len())
    }
}

impl Report {
    pub(super) fn count(&mut self, way: &'static str, theirs: &Answer, is_unsteady: bool) {
        let is_done = theirs.object.is_some()
            || !theirs.steps.is_empty() && theirs.steps.iter().all(|step| step.object.is_some());
        let counts = self.counts.entry(way).or_default();
        counts[0] += 1;
        counts[1] += usize::from(is_done);
        counts[2] += usize::from(is_unsteady);
    }

    pub(super) fn add(&mut self, difference: Difference) {
        let way = difference.way;
        match KNOWN.iter().position(|known| (known.is)(&difference)) {
            Some(at) => self.known.entry((way, at)).or_default().add(difference),
            None => {
                let key = (way, difference.part, title(&difference));
                self.unknown.entry(key).or_default().add(difference);
            }
        }
    }

    /// Prints what is unknown, and writes the page.
    pub(super) fn finish(&self, seed: usize, cases: usize) {
        let mut text = String::new();
        for ((way, part, title), class) in &self.unknown {
            let Some(one) = class.shortest() else { continue };
            text += &format!(
                "{} {way} {part}: {title}\n    case {} {}\n    here  {}\n    there {}\n",
                class.count,
                one.case,
                one.question,
                shown(&one.ours, &one.theirs),
                shown(&one.theirs, &one.ours),
            );
        }
        let n_unknown: usize = self.unknown.values().map(|class| class.count).sum();
        if let Some(page) = std::env::var_os("PATCHES_PAGE") {
            std::fs::write(page, self.page(seed, cases)).expect("write the page");
        }
        assert!(self.unknown.is_empty(), "{n_unknown} unknown differences:\n{text}");
    }

    fn page(&self, seed: usize, cases: usize) -> String {
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let mut page = format!(
            "# Patches here and in the original\n\nMade by `cargo xtask patches`: do not edit.\n\n\
             Generated patches and writes, carried out here and by the libraries that kube-apiserver \
             is built of. {cases} cases of each way (seed {seed}). Command: {} The libraries: {}.\n\n\
             | way | a case is | compared |\n|---|---|---|\n\
             | json | an object with odd names and values, and a JSON patch: escapes, indexes out of \
             range, moves and copies, tests, members that are missing, doubled or of a wrong type | \
             the code and the message of the server, the object, the warnings, and the error that a \
             webhook's patch has |\n\
             | merge | an object and a merge patch with nulls, empty lists and maps | the code, the \
             message, the object, the warnings |\n\
             | strategic | a Pod, Deployment, Service or ConfigMap, and a patch with directives, keys \
             that are missing or doubled, and values of wrong types | the code, the message, the \
             decoded object, the warnings |\n\
             | ownership | two to five applies, updates and patches of one object of these kinds or \
             of a custom one, by several managers, through both endpoints, by force or not | after \
             each write the code, the message, the conflicts, the object and the managed fields \
             without their times |\n\n\
             | way | cases | carried out | several answers there | differ |\n|---|---|---|---|---|\n",
            variable("PATCHES_COMMAND"),
            variable("PATCHES_VERSIONS"),
        );
        for way in WAYS {
            let [cases, done, unsteady] = self.counts.get(way).copied().unwrap_or_default();
            let known = self.known.iter().filter(|((of, _), _)| *of == way);
            let unknown = self.unknown.iter().filter(|((of, ..), _)| *of == way);
            let n: usize = known.map(|(_, class)| class.count).sum::<usize>()
                + unknown.map(|(_, class)| class.count).sum::<usize>();
            page += &format!("| {way} | {cases} | {done} | {unsteady} | {n} |\n");
        }
        page += "\n## Differences that stay\n\n| way | what differs | cases | why it stays |\n|---|---|---|---|\n";
        for ((way, at), class) in &self.known {
            let known = &KNOWN[*at];
            page += &format!("| {way} | {} | {} | {} |\n", known.what, class.count, known.why);
        }
        let n_unknown: usize = self.unknown.values().map(|class| class.count).sum();
        if n_unknown > 0 {
            page += &format!(
                "| all | what is in no class yet | {n_unknown} | the chore prints them, and fails |\n"
            );
        }
        page
    }
}

/// The texts of a difference, without what is quoted.
fn title(difference: &Difference) -> String {
    let (ours, theirs) = first(&difference.ours, &difference.theirs);
    if let ("object", Some(here), Some(there)) = (difference.part, &ours.object, &theirs.object) {
        return place(&super::without_entries(here), &super::without_entries(there));
    }
    let text = |answer: &Answer| match (&answer.panic, difference.part) {
        (panic, _) if !panic.is_empty() => bare(panic),
        (_, "text") => bare(&answer.text),
        (_, "warnings") => bare(&answer.warnings.join("; ")),
        (_, "causes") => bare(&answer.causes.join("; ")),
        _ if answer.code == 0 => "done".to_owned(),
        _ => format!("{} {}", answer.code, bare(&answer.message)),
    };
    format!("here: {} / there: {}", text(ours), text(theirs))
}

/// Where two values differ first, with both values there.
fn place(here: &Value, there: &Value) -> String {
    if let (Value::Object(ours), Value::Object(theirs)) = (here, there) {
        for name in ours.keys().chain(theirs.keys()) {
            let (here, there) = (ours.get(name), theirs.get(name));
            match (here, there) {
                (Some(here), Some(there)) if here != there => {
                    return format!("{name}.{}", place(here, there));
                }
                (Some(here), None) => {
                    return format!("{name}: {} / absent", bare(&here.to_string()));
                }
                (None, Some(there)) => {
                    return format!("{name}: absent / {}", bare(&there.to_string()));
                }
                _ => {}
            }
        }
    }
    format!("{} / {}", bare(&here.to_string()), bare(&there.to_string()))
}

/// The first step that differs.
fn first<'a>(ours: &'a Answer, theirs: &'a Answer) -> (&'a Answer, &'a Answer) {
    let mut steps = ours.steps.iter().zip(&theirs.steps);
    steps.find(|(ours, theirs)| super::differs(ours, theirs).is_some()).unwrap_or((ours, theirs))
}

fn shown(answer: &Answer, other: &Answer) -> String {
    let (answer, _) = first(answer, other);
    let object = answer.object.as_ref().map(ToString::to_string).unwrap_or_default();
    let Answer { code, message, causes, warnings, text, panic, .. } = answer;
    format!("{code} {message} {causes:?} {warnings:?} {text} {panic} {object}")
}

/// A text without numbers and quoted parts.
fn bare(text: &str) -> String {
    let mut out = String::new();
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (None, '\'' | '"' | '`') => {
                quote = Some(c);
                out.push(c);
            }
            (Some(open), c) if c == open => {
                quote = None;
                out.push(c);
            }
            (Some(_), _) => {}
            (None, c) if c.is_ascii_digit() => {
                if !out.ends_with('0') {
                    out.push('0');
                }
            }
            (None, c) => out.push(c),
        }
    }
    out.truncate(out.char_indices().nth(100).map_or(out.len(), |(at, _)| at));
    out
}
