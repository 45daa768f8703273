//! Owns the choice of the Rust toolchain that builds for wasm32, and its command line. Does not build.

use std::env;
use std::ffi::OsString;
use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::apt;
use crate::paths::Paths;
use crate::run::{cargo, find_on_path, forget_this_package, output, run_within, step};

/// The target of the filter.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

/// Debian's toolchain, and the packages that bring it with the sources of the standard library.
const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_CARGO: &str = "/usr/bin/cargo";
const DEBIAN_PACKAGES: [&str; 3] = ["rustc-web", "cargo-web", "rust-web-src"];

/// How long rustup may take. It hangs without a network.
const RUSTUP_LIMIT: Duration = Duration::from_secs(20);

/// What of the surrounding cargo, and of the user's native flags, would reach a build for wasm32.
const DISTURBING: [&str; 9] = [
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_RUSTC",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_TARGET",
];

/// How rustup and `cargo run` name their toolchain: Debian's must not see it. The library path is that of the rustup
/// toolchain, whose compiler libraries are not Debian's.
const OTHER_TOOLCHAIN: [&str; 5] = ["RUSTUP_TOOLCHAIN", "CARGO", "RUSTC", "RUSTDOC", "LD_LIBRARY_PATH"];

/// A name for error messages, and what finds or makes a way.
type Attempt = (&'static str, fn() -> Result<Way>);

/// The ways to try, in this order: those that need no download come first.
const ATTEMPTS: [Attempt; 4] = [
    ("toolchain in use", installed_target),
    ("Debian's Rust", installed_debian),
    ("rustup", added_target),
    ("apt-get", added_debian),
];

/// A way to build for wasm32 that works on this machine.
pub(crate) enum Way {
    /// The toolchain in use has the target.
    Target,
    /// Debian's toolchain has the sources of the standard library, and builds that too.
    Debian(Debian),
}

/// Debian's toolchain, checked to be usable.
pub(crate) struct Debian {
    version: String,
    linker: PathBuf,
}

impl Way {
    /// Finds the first way that works, and makes one if there is none.
    pub(crate) fn choose() -> Result<Self> {
        let mut reasons = String::new();
        for (name, attempt) in ATTEMPTS {
            match attempt() {
                Ok(way) => return Ok(way),
                Err(error) => write!(reasons, "\n  {name}: {error:#}")?,
            }
        }
        bail!(
            "no Rust toolchain here builds for {TARGET}; one of these is needed:\n\
             - the target in the toolchain: `rustup target add {TARGET}`\n\
             - a network for rustup, so that xtask can add the target\n\
             - Debian's packages: `apt-get install {}`\n\
             tried:{reasons}",
            DEBIAN_PACKAGES.join(" ")
        )
    }

    /// The start of a cargo command line that builds for wasm32: toolchain, target and flags.
    pub(crate) fn cargo_build(&self, paths: &Paths) -> Command {
        let mut command = match self {
            Self::Target => cargo(paths),
            Self::Debian(_) => debian_command(DEBIAN_CARGO),
        };
        for name in DISTURBING {
            command.env_remove(name);
        }
        command.current_dir(&paths.root).env("CARGO_TARGET_DIR", paths.wasm_target());
        command.args(["build", "--target", TARGET, "--config"]).arg(flags(paths));
        if let Self::Debian(debian) = self {
            // Building the standard library is an unstable feature of cargo.
            command.env("RUSTC", DEBIAN_RUSTC).env("RUSTC_BOOTSTRAP", "1");
            command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", &debian.linker);
            command.args(["-Z", "build-std=std,panic_abort"]);
        }
        command
    }
}

impl fmt::Display for Way {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target => formatter.write_str("the toolchain's own target"),
            Self::Debian(debian) => write!(formatter, "Debian's Rust {} (build-std)", debian.version),
        }
    }
}

fn installed_target() -> Result<Way> {
    let library = output(Command::new(rustc()).args(["--print", "target-libdir", "--target", TARGET]))?;
    ensure!(Path::new(&library).is_dir(), "the target is not installed");
    Ok(Way::Target)
}

fn installed_debian() -> Result<Way> {
    for tool in [DEBIAN_RUSTC, DEBIAN_CARGO] {
        let file = Path::new(tool).canonicalize().with_context(|| format!("`{tool}` is not there"))?;
        ensure!(file.file_name().is_some_and(|name| name != "rustup"), "`{tool}` is rustup's");
    }
    let sysroot = PathBuf::from(output(debian_command(DEBIAN_RUSTC).args(["--print", "sysroot"]))?);
    let library = sysroot.join("lib/rustlib/src/rust/library");
    ensure!(library.is_dir(), "the library sources are not in `{}`", library.display());
    let version = output(debian_command(DEBIAN_RUSTC).arg("--version"))?;
    let version = version.split_whitespace().nth(1).context("`rustc --version` names no version")?.to_owned();
    let needed = env!("CARGO_PKG_RUST_VERSION");
    ensure!(release(&version) >= release(needed), "version {version} is older than {needed}");
    let linker = linker(&sysroot)?;
    Ok(Way::Debian(Debian { version, linker }))
}

fn added_target() -> Result<Way> {
    let rustup = find_on_path("rustup").context("there is no `rustup` on PATH")?;
    step(&format!("adding the target {TARGET} with rustup"), || {
        run_within(Command::new(rustup).args(["target", "add", TARGET]), RUSTUP_LIMIT)
    })?;
    installed_target()
}

fn added_debian() -> Result<Way> {
    apt::install(&DEBIAN_PACKAGES)?;
    installed_debian()
}

/// Debian's compiler brings no linker for wasm32; the toolchain in use has one, and so has the package `lld`.
fn linker(debian: &Path) -> Result<PathBuf> {
    let in_use = PathBuf::from(output(Command::new(rustc()).args(["--print", "sysroot"]))?);
    for sysroot in [&in_use, debian] {
        let hosts = sysroot.join("lib/rustlib");
        let hosts = hosts.read_dir().with_context(|| format!("cannot list `{}`", hosts.display()))?;
        for host in hosts {
            let linker = host?.path().join("bin/rust-lld");
            if linker.is_file() {
                return Ok(linker);
            }
        }
    }
    find_on_path("wasm-ld").context("there is neither `rust-lld` in the toolchain in use nor `wasm-ld` on PATH")
}

fn rustc() -> OsString {
    env::var_os("RUSTC").unwrap_or_else(|| "rustc".into())
}

fn debian_command(program: &str) -> Command {
    let mut command = Command::new(program);
    for name in OTHER_TOOLCHAIN {
        command.env_remove(name);
    }
    forget_this_package(&mut command);
    command
}

/// Inlines less. All policies in one function would make nothing faster, and cost a tenth of the module.
const INLINING: &str = "-Cllvm-args=-inline-threshold=40";

/// Enables SIMD, which every current Wasm runtime has: it moves and hashes several words at once.
const FEATURES: &str = "-Ctarget-feature=+simd128";

/// Writes references in one byte where that is enough, instead of five: it saves a twentieth of the module.
const COMPRESSION: &str = "-Clink-arg=--compress-relocations";

/// Also keeps the places of downloaded crates and of generated code, which panic messages name, out of the module: the
/// digest depends neither on the user's home nor on where the filter is built.
fn flags(paths: &Paths) -> String {
    let home = env::var("CARGO_HOME").or_else(|_| env::var("HOME").map(|home| format!("{home}/.cargo")));
    let remap = home.map(|home| format!("--remap-path-prefix={home}=/cargo"));
    let generated = format!("--remap-path-prefix={}=/target", paths.wasm_target().display());
    let ours = [INLINING, FEATURES, COMPRESSION].map(str::to_owned);
    let flags = remap.into_iter().chain([generated]).chain(ours);
    let flags: Vec<_> = flags.map(|flag| format!("{flag:?}")).collect();
    format!("target.{TARGET}.rustflags=[{}]", flags.join(", "))
}

/// The numbers of a version, to compare: `1.96.0` is `[1, 96, 0]`.
fn release(version: &str) -> Vec<u32> {
    version.split(['.', '-', '+']).map_while(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::release;

    #[test]
    fn compares_versions_by_number() {
        assert!(release("1.100.0") > release("1.95"));
        assert!(release("1.95.0") >= release("1.95"));
        assert!(release("1.85.1-nightly") < release("1.95"));
    }
}
