//! The real parts that tests run against: kubectl old and new, a Python with the Kubernetes client.
//!
//! Everything lands in one folder of the user's cache and nothing in the system: Debian packages are downloaded with lists of
//! their own and unpacked, never installed. A part is there when its marker file names the recipe's version; the folder may be
//! deleted at any time.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The Python client's version.
const PYTHON_CLIENT: &str = "kubernetes==37.0.2";
/// The suite that holds the newest kubectl, and the package's name there.
const KUBECTL_NEW: Debian = Debian { suite: "sid", package: "kubectl" };
/// The suite that holds a kubectl of 2020, and the package's name there.
const KUBECTL_OLD: Debian = Debian { suite: "bookworm", package: "kubernetes-client" };

struct Debian {
    suite: &'static str,
    package: &'static str,
}

/// Where the parts are.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) kubectl: PathBuf,
    pub(crate) kubectl_old: PathBuf,
    pub(crate) python: PathBuf,
}

impl Parts {
    /// Finds every part, installing what is missing.
    ///
    /// # Errors
    ///
    /// When something is missing that cannot be installed here; the message says what, and what would provide it.
    pub(crate) fn install() -> Result<Self> {
        let home = cache_folder()?.join("parts");
        Ok(Self {
            kubectl: debian_binary(&home.join("kubectl-new"), &KUBECTL_NEW, "usr/bin/kubectl")?,
            kubectl_old: debian_binary(&home.join("kubectl-old"), &KUBECTL_OLD, "usr/bin/kubectl")?,
            python: python(&home.join("python"))?,
        })
    }
}

/// `$XDG_CACHE_HOME/setpoint`, else `~/.cache/setpoint`.
pub(crate) fn cache_folder() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| std::env::home_dir().map(|home| home.join(".cache")));
    Ok(base.context("neither XDG_CACHE_HOME nor a home folder is set")?.join("setpoint"))
}

/// Runs a command to its end; its output is shown only when it fails.
fn run(what: &str, command: &mut Command) -> Result<()> {
    let output = command
        .output()
        .with_context(|| format!("{what}: cannot start {:?}", command.get_program()))?;
    if !output.status.success() {
        bail!(
            "{what}: {command:?}\n{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// Makes a part once: `recipe` fills an empty folder; `version` is what its marker says.
fn once(folder: &Path, version: &str, recipe: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let marker = folder.join(".version");
    if fs::read_to_string(&marker).is_ok_and(|found| found == version) {
        return Ok(());
    }
    println!("installing {version} in {}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fs::create_dir_all(folder)?;
    recipe(folder)?;
    Ok(fs::write(marker, version)?)
}

/// A binary out of a Debian package, unpacked into `folder`.
fn debian_binary(folder: &Path, debian: &Debian, binary: &str) -> Result<PathBuf> {
    let name = format!("{} from Debian {}", debian.package, debian.suite);
    once(folder, &name, |folder| {
        let apt = Apt::new(&folder.join("apt"), debian.suite).with_context(|| {
            format!("{name} is missing and only a Debian machine can download it")
        })?;
        run("read the package lists", apt.command().arg("update"))?;
        run(
            "download the package",
            apt.command().args(["download", debian.package]).current_dir(folder),
        )?;
        let package = fs::read_dir(folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
            .context("apt-get download left no package")?;
        run("unpack the package", Command::new("dpkg-deb").arg("-x").arg(&package).arg(folder))?;
        fs::remove_file(package)?;
        Ok(fs::remove_dir_all(folder.join("apt"))?)
    })?;
    let path = folder.join(binary);
    if !path.exists() {
        bail!("{name} has no {binary}");
    }
    Ok(path)
}

/// apt with a sources list and lists folder of its own, so that the system's stay as they are.
struct Apt {
    folder: PathBuf,
}

impl Apt {
    fn new(folder: &Path, suite: &str) -> Result<Self> {
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part))?;
        }
        fs::write(folder.join("status"), "")?;
        let (uri, keyring) =
            debian_source().context("no Debian source among /etc/apt's sources")?;
        let signed_by =
            keyring.map(|keyring| format!("[signed-by={keyring}] ")).unwrap_or_default();
        fs::write(folder.join("sources.list"), format!("deb {signed_by}{uri} {suite} main\n"))?;
        Ok(Self { folder: folder.to_owned() })
    }

    fn command(&self) -> Command {
        let mut command = Command::new("apt-get");
        let option =
            |name: &str, part: &str| format!("{name}={}", self.folder.join(part).display());
        command.args([
            "-q",
            "-o",
            &option("Dir::Etc::sourcelist", "sources.list"),
            "-o",
            "Dir::Etc::sourceparts=/dev/null",
        ]);
        command.args([
            "-o",
            &option("Dir::State::lists", "lists"),
            "-o",
            &option("Dir::Cache", "cache"),
        ]);
        // Nothing counts as installed: what the machine has of the same name is of no interest.
        command.args(["-o", &option("Dir::State::status", "status")]);
        // As root, apt would drop to a user that cannot write here.
        command.args(["-o", "APT::Sandbox::User=root"]);
        command
    }
}

/// The address and keyring of the machine's own Debian source.
fn debian_source() -> Option<(String, Option<String>)> {
    let mut files = vec![PathBuf::from("/etc/apt/sources.list")];
    files.extend(
        fs::read_dir("/etc/apt/sources.list.d")
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path())),
    );
    files
        .iter()
        .filter_map(|file| fs::read_to_string(file).ok())
        .find_map(|text| parse_source(&text))
}

/// Reads both of apt's formats; the first source whose address ends in `/debian` counts.
fn parse_source(text: &str) -> Option<(String, Option<String>)> {
    let is_debian = |uri: &str| uri.trim_end_matches('/').ends_with("/debian");
    for stanza in text.split("\n\n") {
        let field = |name: &str| {
            stanza
                .lines()
                .find_map(|line| line.strip_prefix(name).map(|value| value.trim().to_owned()))
        };
        if let Some(uri) = field("URIs:")
            .and_then(|uris| uris.split_whitespace().find(|uri| is_debian(uri)).map(str::to_owned))
        {
            return Some((uri, field("Signed-By:")));
        }
        for line in stanza.lines().filter(|line| line.starts_with("deb ")) {
            if let Some(uri) = line.split_whitespace().find(|word| is_debian(word)) {
                return Some((uri.to_owned(), None));
            }
        }
    }
    None
}

/// A Python environment with the Kubernetes client.
fn python(folder: &Path) -> Result<PathBuf> {
    let python = folder.join("bin/python3");
    once(folder, PYTHON_CLIENT, |folder| {
        run(
            "make a Python environment (Debian: python3-venv)",
            Command::new("python3").args(["-m", "venv"]).arg(folder),
        )?;
        run(
            "install the Python client",
            Command::new(&python).args(["-m", "pip", "install", "--quiet", PYTHON_CLIENT]),
        )
    })?;
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::parse_source;

    #[test]
    fn both_formats_of_apt_sources_are_read() {
        let deb822 = "Types: deb\n# a comment\nURIs: http://mirror.example/debian\nSuites: stable\nSigned-By: /k.gpg\n\nTypes: deb\nURIs: http://mirror.example/debian-security\n";
        assert_eq!(
            parse_source(deb822),
            Some(("http://mirror.example/debian".into(), Some("/k.gpg".into())))
        );
        let one_line = "# deb http://x/debian old main\ndeb https://other.example/apt y main\ndeb http://mirror.example/debian/ stable main\n";
        assert_eq!(parse_source(one_line), Some(("http://mirror.example/debian/".into(), None)));
        assert_eq!(parse_source("deb http://mirror.example/ubuntu x main"), None);
    }
}
