//! The program under the name `kube-apiserver`: its flags as options of `setpoint up`.

mod table;

use self::table::Use::{Always, Ignored, List, Own, Same};
use self::table::{FLAGS, flag, is_shown_as_list};
use super::flags::{FlagError, ParsedFlags, Style, help, parse};
use super::parent::Parent;
use super::which_etcd::{Etcd, which};
use crate::emulation;
use crate::flagz::shown;
use crate::up;
use anyhow::{Context as _, bail};
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use setpoint::apiserver::GIT_VERSION;
use setpoint::apiserver::listen::Pki;
use setpoint::object::boolean;
use setpoint::object::error::chain;
use setpoint::object::time::Clock;
use setpoint::registry::{Emulation, FeatureGates, RuntimeConfig};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Environment variable: which controllers run, as `setpoint up --controllers`; `none`: only what a
/// kube-apiserver runs.
pub(crate) const CONTROLLERS: &str = "SETPOINT_CONTROLLERS";
/// Environment variable: the number of nodes without containers.
pub(crate) const NODES: &str = "SETPOINT_NODES";

/// Environment variable: published OpenAPI documents of Kubernetes, or folders of them, as with
/// `setpoint up --openapi`; several as in `PATH`.
pub(crate) const OPENAPI: &str = "SETPOINT_OPENAPI";

/// The default controllers of `setpoint envtest serve`, which [`CONTROLLERS`] replaces: they delete
/// the content of namespaces, and objects without an owner. In kube-apiserver's place none run: a
/// suite may do a controller's work itself.
const CONTROLLERS_OF_SERVE: &[&str] = &["namespace-controller", "garbage-collector-controller"];

/// The file names of a serving certificate in `--cert-dir`.
const SERVING: [&str; 2] = ["apiserver.crt", "apiserver.key"];

/// A command line of `setpoint up`, with what was found on the way.
#[derive(Debug, Default)]
struct Translated {
    /// The options of `setpoint up`.
    options: Vec<OsString>,
    /// Flags without effect, and why.
    ignored: Vec<(String, String)>,
    /// Where a serving certificate is expected, or made.
    cert_dir: Option<PathBuf>,
    /// The addresses of the etcd.
    etcd_servers: Vec<String>,
    /// The other options about etcd, of use only if it is a real one.
    etcd: Vec<OsString>,
    logs_json: bool,
    /// The flags with their values as they were given, for `/flagz`.
    given: BTreeMap<String, String>,
}

/// The settings of the environment.
#[derive(Debug, Default)]
struct Environment {
    controllers: Option<String>,
    /// Those that run unless `controllers` says otherwise.
    default_controllers: &'static [&'static str],
    nodes: Option<String>,
    openapi: Option<OsString>,
}

/// Translates a command line.
fn translate(given: &ParsedFlags, environment: &Environment) -> anyhow::Result<Translated> {
    let mut translated = Translated::default();
    // The last one of each, and the lists.
    let mut last: BTreeMap<&str, &str> = BTreeMap::new();
    let mut options = Vec::new();
    let mut served = Vec::new();
    let emulation = emulated(given)?;
    let gates = feature_gates(given, emulation)?;
    for (name, value) in given {
        let Some((_, used)) = flag(name) else { continue };
        let shown = translated.given.entry(name.clone()).or_default();
        match shown.strip_suffix(']').filter(|_| used == List) {
            Some(former) => *shown = format!("{former},{value}]"),
            None if is_shown_as_list(name, used) => *shown = format!("[{value}]"),
            None => value.clone_into(shown),
        }
        match used {
            List => options.push(format!("--{name}={value}")),
            Ignored(why) => translated.ignored.push((name.clone(), why.to_owned())),
            Same | Own => _ = last.insert(name, value),
            Always => {}
        }
        if matches!(name.as_str(), "feature-gates" | "runtime-config") {
            let pairs = parse_map(name, value)?;
            if name == "runtime-config" {
                let (unserved, pairs): (Vec<_>, Vec<_>) = pairs.iter().partition(|(key, is_on)| {
                    let is_known = || RuntimeConfig::knows(key, gates);
                    *is_on && names_unstable(key) && !is_known()
                });
                if !unserved.is_empty() {
                    let why = "setpoint has no kinds of such a version";
                    translated.ignored.push((name.clone(), why.to_owned()));
                }
                served.extend(pairs.iter().map(|(key, is_on)| format!("{key}={is_on}")));
            } else {
                let faults = pairs
                    .iter()
                    .filter_map(|(gate, is_on)| FeatureGates::check(gate, *is_on, emulation).err());
                let faults = faults.map(|fault| (name.clone(), fault.to_string()));
                translated.ignored.extend(faults);
            }
        }
        if name == "etcd-servers" {
            let servers = value.split(',').filter(|server| !server.is_empty());
            translated.etcd_servers.extend(servers.map(str::to_owned));
        }
    }
    for (name, value) in &last {
        match flag(name) {
            Some((_, Same)) if value.is_empty() => {}
            Some((_, Same)) => options.push(format!("--{name}={value}")),
            _ => {}
        }
    }
    let own = |name: &str| last.get(name).copied().filter(|value| !value.is_empty());
    options.push(format!("--bind-address={}", own("bind-address").unwrap_or("0.0.0.0")));
    // As the original.
    if own("allow-privileged").is_none() {
        options.push("--allow-privileged=false".to_owned());
    }
    let log = own("audit-log-path");
    options.extend(log.map(|path| format!("--audit-log-path={path}")));
    match authorization_modes(given) {
        Some(modes) => options.push(format!("--authorization-mode={modes}")),
        // As the original.
        None if own("authorization-config").is_none() => {
            options.push("--authorization-mode=AlwaysAllow".to_owned());
        }
        None => {}
    }
    if let Some(plugins) = own("admission-control") {
        options.push(format!("--enable-admission-plugins={plugins}"));
        let why = "it is deprecated: the plugins run beside those that run by default";
        translated.ignored.push(("admission-control".to_owned(), why.to_owned()));
    }
    let collects = own("enable-garbage-collector").and_then(boolean::parse) != Some(false);
    let controllers = match environment.controllers.as_deref().map(str::trim) {
        None | Some("") => {
            let is_on = |name: &&&str| collects || !name.starts_with("garbage");
            let all = environment.default_controllers.iter();
            all.filter(is_on).copied().collect::<Vec<_>>().join(",")
        }
        Some("none") => String::new(),
        Some(list) => list.to_owned(),
    };
    options.push(format!("--controllers={controllers}"));
    if !served.is_empty() {
        options.push(format!("--runtime-config={}", served.join(",")));
    }
    if gates != FeatureGates::emulating(emulation) {
        options.push(format!("--feature-gates={gates}"));
    }
    if let Some(n) = environment.nodes.as_deref().map(str::trim).filter(|n| !n.is_empty()) {
        options.push(format!("--nodes={n}"));
    }
    for name in ["etcd-cafile", "etcd-certfile", "etcd-keyfile", "etcd-prefix"] {
        translated.etcd.extend(own(name).map(|value| format!("--{name}={value}").into()));
    }
    if own("tls-cert-file").is_none() {
        translated.cert_dir = own("cert-dir").map(PathBuf::from);
    }
    translated.logs_json = own("logging-format") == Some("json");
    translated.options = options.into_iter().map(OsString::from).collect();
    let documents = environment.openapi.iter().flat_map(|files| std::env::split_paths(files));
    for document in documents.filter(|document| !document.as_os_str().is_empty()) {
        translated.options.extend(["--openapi".into(), document.into_os_string()]);
    }
    Ok(translated)
}

/// The release to emulate.
fn emulated(given: &ParsedFlags) -> anyhow::Result<Emulation> {
    let last = |flag: &str| given.iter().rev().find(|(name, _)| name == flag);
    let release = |flag: &str| {
        let given = last(flag).filter(|(_, value)| !value.is_empty());
        given.map(|(_, value)| emulation::release(value)).transpose()
    };
    let is_on =
        |flag: &str| last(flag).is_some_and(|(_, value)| boolean::parse(value) == Some(true));
    let releases = (release("emulated-version")?, release("min-compatibility-version")?);
    let emulation = emulation::emulation(
        releases,
        is_on("emulation-forward-compatible"),
        is_on("runtime-config-emulation-forward-compatible"),
    )?;
    Ok(emulation)
}

/// All feature gates that are given.
fn feature_gates(given: &ParsedFlags, emulation: Emulation) -> anyhow::Result<FeatureGates> {
    let mut pairs = Vec::new();
    for (name, value) in given.iter().filter(|(name, _)| name == "feature-gates") {
        pairs.extend(parse_map(name, value)?);
    }
    let gates = FeatureGates::of_pairs(pairs, emulation);
    gates.check_needs()?;
    Ok(gates)
}

/// The modes of all flags; `None`: none was given.
fn authorization_modes(given: &ParsedFlags) -> Option<String> {
    let flags = given.iter().filter(|(name, _)| name == "authorization-mode");
    let modes: Vec<&str> =
        flags.flat_map(|(_, value)| value.split(',')).filter(|mode| !mode.is_empty()).collect();
    (!modes.is_empty()).then(|| modes.join(","))
}

/// Whether a key of `--runtime-config` names a version that is not stable.
fn names_unstable(key: &str) -> bool {
    let version = key.split('/').nth(1).unwrap_or_default();
    ["alpha", "beta"].iter().any(|word| version.contains(word))
}

/// Reads a map of `name=bool`.
fn parse_map<'a>(name: &str, value: &'a str) -> anyhow::Result<Vec<(&'a str, bool)>> {
    let mut pairs = Vec::new();
    for pair in value.split(',').filter(|pair| !pair.trim().is_empty()) {
        let (key, text) = match pair.split_once('=') {
            Some((key, text)) => (key.trim(), text.trim()),
            // `--runtime-config=api/all`.
            None if name == "runtime-config" => (pair.trim(), "true"),
            None => bail!(
                "invalid argument {value:?} for \"--{name}\" flag: missing bool value for {pair}"
            ),
        };
        let Some(is_on) = boolean::parse(text) else {
            bail!(
                "invalid argument {value:?} for \"--{name}\" flag: invalid value of {key}={text}, err: strconv.ParseBool: parsing {text:?}: invalid syntax"
            );
        };
        pairs.push((key, is_on));
    }
    Ok(pairs)
}

/// The files of the serving certificate in the folder. Makes both if both are missing, as the
/// original.
fn serving_files(folder: &Path, clock: &Clock) -> anyhow::Result<[PathBuf; 2]> {
    let files = SERVING.map(|name| folder.join(name));
    if files.iter().any(|file| file.exists()) {
        return Ok(files);
    }
    std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let pki = Pki::generate(clock.now(), &[])?;
    let made = pki.files();
    let chain = format!("{}{}", made.server_crt, made.ca_crt);
    for (file, pem, mode) in [(&files[0], &chain, 0o644), (&files[1], &made.server_key, 0o600)] {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(file)
            .and_then(|mut open| open.write_all(pem.as_bytes()))
            .with_context(|| format!("write {}", file.display()))?;
    }
    Ok(files)
}

/// Why `setpoint up` lacks a flag that kube-apiserver has.
pub(super) fn tip(flag: &str) -> Option<String> {
    let name = flag.strip_prefix("--")?;
    let (_, used) = table::flag(name)?;
    let why = match (name, used) {
        ("admission-control", _) => "--enable-admission-plugins takes its place",
        ("enable-garbage-collector", _) => "--controllers chooses the controllers",
        ("logging-format", _) => "RUST_LOG selects the log lines",
        (_, Ignored(why)) => why,
        (_, Always) => "it is always so",
        (_, Same | List | Own) => return None,
    };
    Some(format!("{flag} is a flag of kube-apiserver that setpoint up lacks: {why}"))
}

/// What clap says about a flag, without its label, usage and hint.
fn message(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let mut lines = text.lines().map(str::trim);
    let first = lines.next().unwrap_or_default();
    let values =
        lines.filter(|line| line.starts_with("[possible values") || line.starts_with("tip"));
    let first = first.strip_prefix("error: ").unwrap_or(first);
    [first].into_iter().chain(values).collect::<Vec<_>>().join(" ")
}

/// The options of `setpoint up` as clap reads them.
#[derive(Debug, Parser)]
#[command(name = "kube-apiserver")]
struct UpOptions {
    #[command(flatten)]
    options: up::Options,
}

/// The flags of `setpoint envtest serve`, each unless it is given: those of envtest that name no
/// file, and a free port.
const SERVE: [&str; 5] = [
    "--allow-privileged=true",
    "--authorization-mode=RBAC",
    "--bind-address=127.0.0.1",
    "--disable-admission-plugins=ServiceAccount",
    "--secure-port=0",
];

/// Runs the program under its own name.
pub(crate) fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    run_as(arguments, false)
}

/// `setpoint envtest serve`: for helpers that start no etcd and write no certificates. Prints where
/// it is as one line of JSON.
pub(crate) fn serve(arguments: Vec<OsString>) -> ExitCode {
    run_as(arguments, true)
}

fn run_as(arguments: impl IntoIterator<Item = OsString>, announces: bool) -> ExitCode {
    let takes = |name: &str| flag(name).map(|(takes, _)| takes);
    let read = |arguments: Vec<OsString>| parse("kube-apiserver", Style::Pflag, arguments, takes);
    let mut given = match read(arguments.into_iter().collect()) {
        Ok(given) => given,
        Err(error) => return refuse(&error),
    };
    if announces {
        match read(SERVE.into_iter().map(OsString::from).collect()) {
            Ok(defaults) => add_missing(&mut given, defaults),
            Err(error) => return refuse(&error),
        }
    }
    let asks = |name: &str| given.iter().any(|(n, value)| n == name && value == "true");
    if asks("help") {
        let about = "kube-apiserver, as setpoint takes its place for tests.";
        let flags = FLAGS.iter().map(|(name, takes, _)| (*name, *takes));
        return print(&help("kube-apiserver", about, flags));
    }
    if asks("version") {
        return print(&format!("Kubernetes {GIT_VERSION}\n"));
    }
    let variable = |name| std::env::var(name).ok();
    let environment = Environment {
        controllers: variable(CONTROLLERS),
        default_controllers: if announces { CONTROLLERS_OF_SERVE } else { &[] },
        nodes: variable(NODES),
        openapi: std::env::var_os(OPENAPI),
    };
    let started =
        translate(&given, &environment).and_then(|translated| start(translated, announces));
    match started {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Error: {}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Adds the defaults of flags that are not given. One that is a list is replaced, not added to. A
/// file of authorizers takes the place of the modes.
fn add_missing(given: &mut ParsedFlags, mut defaults: ParsedFlags) {
    let is_given = |name: &str| given.iter().any(|(given, _)| given == name);
    let has_file = is_given("authorization-config");
    defaults.retain(|(name, _)| match &**name {
        "authorization-mode" if has_file => false,
        name => !is_given(name),
    });
    given.append(&mut defaults);
}

fn refuse(error: &FlagError) -> ExitCode {
    eprintln!("Error: {error}");
    ExitCode::FAILURE
}

/// Prints a page. A closed output is no error.
pub(super) fn print(page: &str) -> ExitCode {
    let mut out = io::stdout().lock();
    let _ = out.write_all(page.as_bytes()).and_then(|()| out.flush());
    ExitCode::SUCCESS
}

fn start(mut translated: Translated, announces: bool) -> anyhow::Result<()> {
    use setpoint::log::LogFormat;

    setpoint::log::init(if translated.logs_json { LogFormat::Json } else { LogFormat::Text })?;
    for (flag, why) in &translated.ignored {
        tracing::info!("--{flag} has no effect: {why}");
    }
    let parent = Parent::from_environment();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("start the runtime")?.block_on(async {
        let mut arguments = vec![OsString::from("kube-apiserver")];
        arguments.append(&mut translated.options);
        if which(&translated.etcd_servers).await? == Etcd::Real {
            let servers = translated.etcd_servers.join(",");
            arguments.push(format!("--etcd-servers={servers}").into());
            arguments.append(&mut translated.etcd);
        } else if !translated.etcd.is_empty() {
            tracing::info!("the flags about etcd have no effect: objects are in this process");
        }
        let clock = Clock::wall();
        if let Some(folder) = &translated.cert_dir {
            let [certificate, key] = serving_files(folder, &clock)?;
            let option = |name: &str, path: PathBuf| {
                let mut option = OsString::from(format!("--{name}="));
                option.push(path);
                option
            };
            arguments.push(option("tls-cert-file", certificate));
            arguments.push(option("tls-private-key-file", key));
        }
        let command = UpOptions::command();
        let parsed = command.clone().try_get_matches_from(arguments).and_then(|matches| {
            let mut parsed = UpOptions::from_arg_matches(&matches)?;
            parsed.options.flags = shown(&command, &matches);
            // Under the names that this program's user knows.
            parsed.options.flags.append(&mut translated.given);
            Ok(parsed)
        });
        let options = match parsed {
            Ok(parsed) => parsed.options,
            Err(error) => bail!("{}", message(&error)),
        };
        let leftovers = translated.cert_dir.into_iter().collect();
        up::serve(options, Some(up::Harness { parent, leftovers, announces })).await
    })
}

#[cfg(test)]
mod tests;
