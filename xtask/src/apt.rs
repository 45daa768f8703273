//! Owns the installation of Debian packages, where apt-get is there and allowed, and the unpacking of those that are better
//! not installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::run::{find_on_path, output, run, say, step};

/// Installs packages. Never removes one to make room: a `rustc` of the user's own would be in the way.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    find_on_path("apt-get").context("there is no `apt-get`")?;
    let privilege = privilege()?;
    step(&format!("installing {} with apt-get", packages.join(" ")), || {
        if let Err(error) = run(apt_get(privilege).arg("update")) {
            say(format_args!("going on with the package lists there are: {error:#}"));
        }
        run(apt_get(privilege).args(["install", "--yes", "--no-install-recommends", "--no-remove"]).args(packages))
    })
}

/// Unpacks a package into a directory without installing it: no service of it is started. Root is needed only where there are
/// no package lists.
pub(crate) fn unpack(package: &str, directory: &Path) -> Result<()> {
    find_on_path("apt-get").context("there is no `apt-get`")?;
    // As root, apt would switch to a user who may not write here.
    let arguments = ["-qq", "-o", "APT::Sandbox::User=root", "download", package];
    let download = || run(Command::new("apt-get").args(arguments).current_dir(directory));
    if let Err(error) = download() {
        say(format_args!("updating the package lists: {error:#}"));
        run(apt_get(privilege()?).arg("update"))?;
        download()?;
    }
    let files = fs::read_dir(directory)?.map(|file| Ok(file?.path())).collect::<Result<Vec<_>>>()?;
    let archive = files.iter().find(|file| file.extension().is_some_and(|extension| extension == "deb"));
    let archive = archive.context("apt-get downloaded no package")?;
    run(Command::new("dpkg-deb").arg("--extract").args([archive, directory]))?;
    Ok(fs::remove_file(archive)?)
}

/// What goes before a command that only root may run.
fn privilege() -> Result<&'static [&'static str]> {
    if output(Command::new("id").arg("-u"))? == "0" {
        return Ok(&[]);
    }
    match output(Command::new("sudo").args(["-n", "true"])) {
        Ok(_) => Ok(&["sudo", "-n"]),
        Err(error) => bail!("apt-get needs root, or sudo without a password: {error:#}"),
    }
}

fn apt_get(privilege: &[&str]) -> Command {
    // `env` and not `Command::env`, since sudo drops the environment.
    let words = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-o", "DPkg::Lock::Timeout=60"];
    let mut words = privilege.iter().chain(&words);
    let mut command = Command::new(words.next().unwrap_or(&"env"));
    command.args(words);
    command
}
