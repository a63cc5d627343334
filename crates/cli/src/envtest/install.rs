//! `setpoint envtest install` and `setpoint envtest use`.

use super::NAMES;
use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use setpoint::apiserver::GIT_VERSION;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The file with the names of the binaries that are this program.
const MARKER: &str = ".setpoint";
/// Mode of the binaries.
const MODE: u32 = 0o755;

/// Options of `setpoint envtest install`.
#[derive(Debug, Args)]
pub(crate) struct Install {
    /// The folder. It is made if it is missing.
    folder: PathBuf,
    /// Replace a kube-apiserver and an etcd that are not setpoint's.
    #[arg(long)]
    force: bool,
}

/// Options of `setpoint envtest use`, named as setup-envtest's.
#[derive(Debug, Args)]
pub(crate) struct Use {
    /// Accepted for scripts: the one version that is served is used.
    version: Option<String>,
    /// What to print.
    #[arg(short, long, value_enum, default_value_t = Print::Overview)]
    print: Print,
    /// The folder below which the binaries are placed, as `k8s/VERSION-OS-ARCH`. Default:
    /// `setpoint-envtest` in the user's data folder.
    #[arg(long, value_name = "DIR")]
    bin_dir: Option<PathBuf>,
    /// Accepted for scripts: nothing is ever downloaded.
    #[arg(short, long)]
    installed_only: bool,
}

/// What `use` prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Print {
    /// Version, system and folder.
    Overview,
    /// The folder only, without a line end.
    Path,
    /// A line for a shell that sets KUBEBUILDER_ASSETS.
    Env,
}

impl Install {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        install(&self.folder, self.force)?;
        crate::print(format_args!("installed in {}\n", self.folder.display()))
    }
}

/// The version without `v` and build metadata.
fn version() -> &'static str {
    let version = GIT_VERSION.strip_prefix('v').unwrap_or(GIT_VERSION);
    version.split('+').next().unwrap_or(version)
}

impl Use {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let (version, system) = (version(), std::env::consts::OS);
        let machine = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        if let Some(wanted) = self.version.as_deref().filter(|wanted| !is_within(version, wanted)) {
            eprintln!("setpoint: version {wanted} is asked for; {version} is served");
        }
        let folder = match self.bin_dir {
            Some(folder) => std::path::absolute(folder)?,
            None => data_folder()?.join("setpoint-envtest"),
        };
        let folder = folder.join("k8s").join(format!("{version}-{system}-{machine}"));
        install(&folder, false)?;
        let mut out = std::io::stdout().lock();
        let path = folder.display();
        match self.print {
            Print::Path => write!(out, "{path}"),
            Print::Env => writeln!(out, "export KUBEBUILDER_ASSETS='{path}'"),
            Print::Overview => {
                writeln!(out, "Version: {version}\nOS/Arch: {system}/{machine}\nPath: {path}")
            }
        }
        .and_then(|()| out.flush())
        .context("write to standard output")
    }
}

/// Whether a version is what setup-envtest would accept for `wanted`, as far as numbers go:
/// `1.36`, `1.36.x`, `1.36.x!`, `latest`.
fn is_within(version: &str, wanted: &str) -> bool {
    let wanted = wanted.trim_end_matches('!').trim_start_matches('v');
    let mut parts = version.split('.');
    wanted == "latest"
        || wanted.split('.').all(|part| {
            let own = parts.next().unwrap_or_default();
            matches!(part, "x" | "X" | "*") || part == own
        })
}

fn data_folder() -> anyhow::Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    variable("XDG_DATA_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(variable("HOME")?).join(".local/share")))
        .context("neither XDG_DATA_HOME nor HOME is set: give --bin-dir")
}

/// Places the binaries: three files, because archives and copies of a folder drop links. A kubectl
/// that is already there stays, unless it is an earlier one of this program.
fn install(folder: &Path, force: bool) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("find this program")?;
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let marker = folder.join(MARKER);
    let ours = fs::read_to_string(&marker).unwrap_or_default();
    let is_ours = |name: &str| ours.lines().any(|line| line == name);
    let is_foreign = |name: &str| folder.join(name).exists() && !is_ours(name);
    if NAMES[..2].iter().any(|name| is_foreign(name)) && !force {
        bail!(
            "{} has a kube-apiserver or etcd that is not setpoint's: choose another folder, or give --force",
            folder.display()
        );
    }
    let names = if is_foreign(NAMES[2]) { &NAMES[..2] } else { &NAMES[..] };
    let source = fs::metadata(&program).context("read this program")?;
    for name in names {
        let path = folder.join(name);
        let is_same = fs::metadata(&path).is_ok_and(|file| {
            file.len() == source.len()
                && matches!((file.modified(), source.modified()), (Ok(a), Ok(b)) if a >= b)
        });
        if is_ours(name) && is_same {
            continue;
        }
        // Under another name first, so that a suite that starts now finds the old one or the new.
        let temporary = folder.join(format!(".{name}.{}", std::process::id()));
        let placed = fs::copy(&program, &temporary)
            .and_then(|_| fs::set_permissions(&temporary, fs::Permissions::from_mode(MODE)))
            .and_then(|()| fs::rename(&temporary, &path));
        if placed.is_err() {
            // The temporary file is of no use. A failure to remove it adds no information.
            _ = fs::remove_file(&temporary);
        }
        placed.with_context(|| format!("write {}", path.display()))?;
    }
    // The names that may be replaced the next time.
    fs::write(&marker, names.join("\n") + "\n")
        .with_context(|| format!("write {}", marker.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_the_parts_that_are_given() {
        for wanted in ["1.36", "1.36.x", "1.36.2", "1.x", "v1.36.2", "1.36.x!", "latest"] {
            assert!(is_within("1.36.2", wanted), "{wanted}");
        }
        for wanted in ["1.31.x", "1.36.1", "2"] {
            assert!(!is_within("1.36.2", wanted), "{wanted}");
        }
    }

    #[test]
    fn foreign_binaries_stay_unless_forced_and_a_kubectl_always() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, read) =
            (folder.path(), |name: &str| fs::read_to_string(folder.path().join(name)).ok());
        fs::write(folder.join("etcd"), "original").unwrap();
        fs::write(folder.join("kubectl"), "real").unwrap();
        let error = install(folder, false).unwrap_err();
        assert!(error.to_string().contains("not setpoint's"), "{error}");
        assert_eq!(read("etcd").as_deref(), Some("original"));
        install(folder, true).unwrap();
        assert_ne!(read("etcd").as_deref(), Some("original"));
        assert_eq!(read("kubectl").as_deref(), Some("real"));
        install(folder, false).unwrap();
        assert_eq!(read("kubectl").as_deref(), Some("real"));
    }
}
