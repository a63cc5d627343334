//! `cargo xtask sequences`: sends sequences of writes to Kubernetes' own kube-apiserver and to
//! `setpoint up`, and writes how the answers differ in `docs/sequences.md`.
//!
//! A sequence is about one object, which is absent at first: it is created, updated, patched in
//! four ways, applied by several managers, scaled, deleted and made again, each for real. After
//! each write the object is read, so that what is stored is compared, too, with the owners of its
//! fields. A sequence ends at the first difference of what is accepted or stored. The seed and its
//! number say all of it.

mod step;

use super::answer::Class;
use super::bases::{Base, FIXTURES, Material, bases};
use super::both::{Shown, Sides, both, pause};
use super::change::Changer;
use super::findings::{Findings, on_numbers};
use super::page::{self, Page};
use super::random::Random;
use super::{own, text};
use crate::http::Answer;
use crate::servers::{Layout, Programs};
use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use step::{Body, Step};

/// Kinds whose objects change without a request, or stay until a controller lets them go.
const KINDS_OFF: &[&str] = &["Namespace", "APIService", "Event"];

/// How answers differ to a request with a number of more than 32 bits.
const CUT: &str = "cut number";
/// Other owners after a change by an empty list or map.
const OWNED_EMPTY: &str = "owned empty";
/// How often an object is read until both servers agree, or until it is gone: controllers of the
/// servers write conditions.
const READS_MAX: usize = 40;

/// What to run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    programs: Programs,
    /// How many sequences.
    #[arg(long, default_value_t = 5_000)]
    sequences: usize,
    /// How many requests a sequence has at most.
    #[arg(long, default_value_t = 20)]
    length: usize,
    /// The seed of the sequences.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only objects of this kind; prints the differences, and leaves the page alone.
    #[arg(long)]
    kind: Option<String>,
    /// Only the sequence with this number, with both servers' answers. May be repeated.
    #[arg(long)]
    sequence: Vec<usize>,
    /// Prints the differences, and leaves the page alone.
    #[arg(long)]
    no_page: bool,
    /// How many connections each server has.
    #[arg(long, default_value_t = 8)]
    connections: usize,
}

/// The object of a sequence.
#[derive(Debug)]
struct Subject {
    base: Base,
    /// Its collection.
    collection: String,
    path: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let servers = args.programs.start("sequences", Layout::Apart)?;
    let material = Material::of(&bases(None)?);
    let subjects = subjects(args.kind.as_deref(), &mut servers.connect())?;
    for number in &args.sequence {
        println!("\nsequence {number}");
        one(*number, args, &subjects, &material, &mut servers.connect(), None)?;
    }
    if !args.sequence.is_empty() {
        return Ok(());
    }
    let findings = Findings::default();
    // Namespaced objects first: some cluster-scoped ones say what these may be.
    for is_namespaced in [true, false] {
        let here: Vec<usize> = (0..subjects.len())
            .filter(|at| subjects[*at].base.resource.namespaced == is_namespaced)
            .collect();
        on_numbers(&servers, args.connections, here.len(), |at, sides| {
            // One object has its sequences one after the other.
            for number in (here[at]..args.sequences).step_by(subjects.len()) {
                one(number, args, &subjects, &material, sides, Some(&findings))?;
            }
            Ok(())
        })?;
    }
    let report = findings.into_report()?;
    print!("{}", page::listing(&report));
    if args.kind.is_none() && !args.no_page && args.programs.is_default() {
        let command =
            format!("sequences --kube-apiserver PATH --etcd PATH --sequences {}", args.sequences);
        let command = format!("{command} --length {} --seed {}", args.length, args.seed);
        let page = Page {
            path: "docs/sequences.md",
            title: "Answers to sequences of writes",
            about: "The same requests to kube-apiserver and to `setpoint up`. A sequence is about \
                    one object: it is created, updated, patched in four ways, applied by three \
                    managers, written through `status` and `scale`, deleted and \
                    created again, all for real. Each write has small changes of the kind that \
                    [validation.md](validation.md) describes. Compared are the answer to each \
                    request and the object that is read after it: code, reason, causes, message, \
                    warnings, and the whole object with `managedFields`, without times, uids and \
                    what else is made by chance. A sequence ends at the first difference of what \
                    is stored or accepted.",
            unit: "requests",
            plugins: page::FEW_PLUGINS,
            command: &command,
        };
        page.write(&report, &args.programs.version()?)?;
    }
    Ok(())
}

/// The objects, each in a namespace of its own.
fn subjects(kind: Option<&str>, sides: &mut Sides) -> Result<Vec<Subject>> {
    let mut subjects = Vec::new();
    for mut base in bases(kind)? {
        let serves = |verb| base.has_verb(verb);
        let is_whole = ["create", "get", "update", "patch", "delete"].into_iter().all(serves);
        let is_named = base.fixture["metadata"]["name"].is_string();
        if !is_whole || !is_named || KINDS_OFF.contains(&base.resource.kind) {
            continue;
        }
        let namespace = format!("sequences-{}", subjects.len());
        let moved = base.fixture.to_string().replace(FIXTURES, &namespace);
        base.fixture = serde_json::from_str(&moved)?;
        let collection = base.path(&namespace);
        if base.resource.namespaced {
            let namespace = json!({"metadata": {"name": namespace}}).to_string();
            for side in sides.iter_mut() {
                let answer = side.send("POST", "/api/v1/namespaces", namespace.as_bytes())?;
                ensure!(answer.code == 201, "a namespace: {}", text(&answer));
            }
        }
        let name = base.fixture["metadata"]["name"].as_str().unwrap_or_default();
        let path = format!("{collection}/{name}");
        subjects.push(Subject { collection, path, base });
    }
    ensure!(!subjects.is_empty(), "no such kind");
    Ok(subjects)
}

/// Runs a sequence. Without findings it shows each request and both answers.
fn one(
    number: usize,
    args: &Args,
    subjects: &[Subject],
    material: &Material,
    sides: &mut Sides,
    findings: Option<&Findings>,
) -> Result<()> {
    let subject = &subjects[number % subjects.len()];
    let mut changer = Changer { material, random: Random::new(args.seed, number) };
    let mut stored: Option<[Value; 2]> = None;
    let mut so_far: Vec<String> = Vec::new();
    for _ in 0..args.length {
        let original = stored.as_ref().map(|[_, original]| original);
        let step = step::draw(&mut changer, &subject.base, original);
        so_far.push(step.name());
        let shown = send(&step, subject, stored.as_ref(), sides)?;
        let [ours, original] = &shown.outcomes;
        let mut class = ours.differs(original);
        if let Some(class) = class.as_mut() {
            if is_cut(&shown.answers) {
                class.what = CUT;
            } else if class.what == "object"
                && class.ours.starts_with("metadata.managedFields")
                && step.gives_empty()
            {
                class.what = OWNED_EMPTY;
            }
        }
        if findings.is_none() {
            show(&step, &shown, class.as_ref());
        }
        let is_read = class.is_none();
        let mut requests = format!("{} {}", step.name(), subject.base.resource.kind);
        if is_read {
            let (read, now) = read(subject, &step, sides)?;
            stored = now;
            class = read.differs();
            requests.insert_str(0, "read after ");
            if let (None, Some(class)) = (findings, &class) {
                println!("  read: {class:?}");
                for answer in &read.answers {
                    println!("  {}", String::from_utf8_lossy(&answer.body));
                }
            }
        }
        // What both refuse leaves the object as it was.
        let accepted = original.is_accepted();
        let is_over = class.is_some() && (is_read || accepted || ours.is_accepted());
        if let Some(findings) = findings {
            let tail = so_far[so_far.len().saturating_sub(4)..].join(", ");
            let example = format!("{}: {tail}: {}", subject.base.title(), step.show());
            let difference = class.map(|class| (requests, class));
            findings.add(subject.base.resource.kind, accepted, (number, example), difference)?;
        }
        if is_over {
            break;
        }
    }
    remove(subject, sides)
}

/// Whether the original has cut a number of more than 32 bits, which is refused here.
fn is_cut([ours, original]: &[Answer; 2]) -> bool {
    let refuses = |answer: &Answer| text(answer).contains("cannot unmarshal number");
    refuses(ours) && !refuses(original)
}

/// Sends a request to both servers, with what a server made by chance as that server has it.
fn send(
    step: &Step,
    subject: &Subject,
    stored: Option<&[Value; 2]>,
    sides: &mut Sides,
) -> Result<Shown> {
    let answers = both(sides, |side, at| {
        let mine = stored.map(|stored| &stored[at]);
        let mut body = match &step.body {
            Body::Same(body) => body.clone(),
            // Changed as the original's was, so that its uid and versions are this server's.
            Body::Changed { changes, is_versioned } => {
                let mut object = mine.unwrap_or(&subject.base.fixture).clone();
                for change in changes {
                    change.apply(&mut object);
                }
                if !is_versioned && let Some(meta) = object["metadata"].as_object_mut() {
                    meta.remove("resourceVersion");
                }
                object
            }
        };
        if let Some([ours, original]) = stored {
            body = own(body, original, if at == 0 { ours } else { original });
        }
        let path = match step.is_create() {
            true => format!("{}{}", subject.collection, step.query),
            false => format!("{}{}{}", subject.path, step.subresource(), step.query),
        };
        let bytes = if body.is_null() { String::new() } else { body.to_string() };
        let kind = step.kind.content_type();
        side.send_as(step.kind.method(), &path, bytes.as_bytes(), kind, "application/json")
    })?;
    Ok(Shown::of(answers, &step.asked(&subject.base), stored))
}

/// Reads the object from both until they agree. Returns it, if it is there, too.
fn read(subject: &Subject, step: &Step, sides: &mut Sides) -> Result<(Shown, Option<[Value; 2]>)> {
    for attempt in 1.. {
        let answers = both(sides, |side, _| side.send("GET", &subject.path, b""))?;
        let shown = Shown::of(answers, &step.asked(&subject.base), None);
        if shown.outcomes[0] == shown.outcomes[1] || attempt == READS_MAX {
            let mut stored = None;
            if shown.answers.iter().all(|answer| answer.code == 200) {
                let of = |answer: &Answer| serde_json::from_slice(&answer.body);
                stored = Some([of(&shown.answers[0])?, of(&shown.answers[1])?]);
            }
            return Ok((shown, stored));
        }
        pause();
    }
    bail!("no attempt")
}

/// Ends a sequence: the object goes.
fn remove(subject: &Subject, sides: &mut Sides) -> Result<()> {
    for (side, program) in sides.iter_mut().zip(["setpoint", "kube-apiserver"]) {
        let mut last = Answer::default();
        for _ in 0..READS_MAX {
            let options = json!({"gracePeriodSeconds": 0, "propagationPolicy": "Background"});
            side.send("DELETE", &subject.path, options.to_string().as_bytes())?;
            let free = json!({"metadata": {"finalizers": null}}).to_string();
            last = side.send("PATCH", &subject.path, free.as_bytes())?;
            if last.code == 404 {
                break;
            }
            pause();
        }
        ensure!(last.code == 404, "{} stays in {program}: {}", subject.base.title(), text(&last));
    }
    Ok(())
}

/// Prints a request and both answers.
fn show(step: &Step, shown: &Shown, class: Option<&Class>) {
    println!("{} {}", step.name(), step.show());
    let codes: Vec<String> = shown.answers.iter().map(|answer| answer.code.to_string()).collect();
    println!("  {}", codes.join(" / "));
    let Some(class) = class else { return };
    println!("  {class:?}");
    println!("  {}", step.whole());
    for answer in &shown.answers {
        println!("  {:?} {}", answer.warnings, String::from_utf8_lossy(&answer.body));
    }
}
