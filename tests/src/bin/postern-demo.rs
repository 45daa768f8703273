//! `cargo xtask demo`: the whole line on the real parts, shown in a minute.

#![forbid(unsafe_code)]

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Parser;
use postern_tests::{Client, ControlPlane, Envoy, Received, Request, Site, Upstream, site::repository, wait};
use serde_json::Value;
use tokio::{
    runtime,
    signal::unix::{SignalKind, signal},
};

const KEY: &str = "demo-key";

/// Starts an upstream, the control plane and Envoy, pushes the example policies and sends a handful of requests.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask demo")]
struct Options {
    /// Stop after the table; the exit code says whether every answer was the expected one
    #[arg(long)]
    once: bool,
    /// The port of the gateway; another free one is taken if it is not free
    #[arg(long, default_value_t = 10000)]
    port: u16,
}

/// One line of the table.
struct Case {
    what: &'static str,
    request: Request,
    expect: u16,
    decided_by: &'static str,
}

fn main() -> Result<ExitCode> {
    let options = Options::parse();
    let stop = stop_on_signals()?;
    let demo = Demo::start(options.port)?;
    demo.introduce()?;
    let good = demo.show_table()?;
    if options.once {
        return Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    demo.invite();
    demo.follow(&stop)?;
    println!("\nStopping Envoy, the control plane and the upstream.");
    Ok(ExitCode::SUCCESS)
}

/// The running parts. Dropping it ends them all.
struct Demo {
    envoy: Envoy,
    control_plane: ControlPlane,
    site: Site,
    upstream: Upstream,
}

impl Demo {
    fn start(port: u16) -> Result<Self> {
        let directory = repository().join("target/demo/policies");
        if directory.exists() {
            fs::remove_dir_all(&directory)?;
        }
        let upstream = Upstream::start(0)?;
        let site = Site::quickstart(directory, upstream.address(), if is_free(port) { port } else { 0 })?;
        let control_plane = ControlPlane::start(site.directory())?;
        let envoy = Envoy::whole(control_plane.xds())?;
        envoy.wait_until_serving(site.listener(), &Request::get("/welcome"))?;
        Ok(Self { envoy, control_plane, site, upstream })
    }

    /// What runs where, and that the policies have arrived.
    fn introduce(&self) -> Result<()> {
        let acked = |status: &Value| status.pointer("/nodes/0/types/extensionConfig/running").is_some();
        let status = self.control_plane.wait_for_status("Envoy's ACK", acked)?;
        let directory = self.site.directory();
        let shown = directory.strip_prefix(repository()).unwrap_or(directory);
        let revision: String = text(&status, "revision").chars().take(12).collect();
        println!("\nPostern: route policies inside Envoy\n");
        println!("  gateway        http://{}   a real Envoy, process {}", self.site.listener(), self.envoy.id());
        println!("  control plane  http://{}/status   xDS on {}", self.control_plane.http(), self.control_plane.xds());
        println!("  upstream       http://{}   echoes what it gets", self.upstream.address());
        println!("  policies       {}   revision {revision}, accepted by Envoy\n", shown.display());
        Ok(())
    }

    /// Sends the requests one by one, and says for each what came back and who decided. `true` if all was as expected.
    fn show_table(&self) -> Result<bool> {
        println!("  {:<16} {:<32} {:<7} DECIDED BY", "REQUEST", "WITH", "ANSWER");
        let mut good = true;
        for case in cases() {
            let seen = self.envoy.access_log().len();
            let answer = Client::new(self.site.listener()).send(&case.request)?;
            let (line, _) = wait::until("the access log", || Ok(self.envoy.access_log().into_iter().nth(seen)))?;
            good &= is_expected(&case, &answer, &line);
            print_row(&case, &answer, &line);
        }
        println!();
        Ok(good)
    }

    fn invite(&self) {
        let base = format!("http://{}", self.site.listener());
        println!("Try it:\n");
        println!("  curl -i {base}/users/7");
        println!("  curl -i -H 'x-api-key: {KEY}' {base}/users/7");
        println!("  curl -s http://{}/status", self.control_plane.http());
        println!("\nEdit a file in {}: a good change is in force at once,", self.site.directory().display());
        println!(
            "a wrong one is refused with file, line and field, and Envoy goes on with the old. Ctrl-C ends it all.\n"
        );
    }

    /// Shows requests and changes as they come, until stopped.
    fn follow(&self, stop: &AtomicBool) -> Result<()> {
        let (mut requests, mut lines) = (self.envoy.access_log().len(), self.control_plane.log().len());
        while !stop.load(Ordering::Relaxed) {
            let log = self.envoy.access_log();
            for line in log.iter().skip(requests) {
                println!("  {} {} → {}  {}", text(line, "method"), text(line, "path"), status(line), decided_by(line));
            }
            requests = log.len();
            let log = self.control_plane.log();
            for line in log.iter().skip(lines).filter_map(|line| change(line)) {
                println!("  {line}");
            }
            lines = log.len();
            wait::until_true("Envoy", || Ok(Client::new(self.envoy.admin()).get("/ready")?.status == 200))
                .context("Envoy has ended")?;
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

fn cases() -> [Case; 6] {
    let users = || Request::get("/users/7");
    let case = |what, request, expect, decided_by| Case { what, request, expect, decided_by };
    let with = |key: &[u8]| users().header("x-api-key", key);
    [
        case("no key", users(), 401, "step apiKeyAuth: key_missing"),
        case("x-api-key: guess", with(b"guess"), 401, "step apiKeyAuth: key_unknown"),
        case("x-api-key: demo-key", with(KEY.as_bytes()), 200, "all steps passed, consumer mobile-app"),
        case("x-api-key: \\xff\\xfe (not UTF-8)", with(b"\xff\xfe"), 401, "step apiKeyAuth: key_unknown"),
        case("a route without a policy", Request::get("/welcome"), 200, "nobody: no policy on this route"),
        case("a path without a route", Request::get("/nowhere"), 404, "Envoy: no such route"),
    ]
}

/// Whether the answer, and who decided it, are the expected ones.
fn is_expected(case: &Case, answer: &Received, line: &Value) -> bool {
    answer.status == case.expect && decided_by(line) == case.decided_by
}

fn print_row(case: &Case, answer: &Received, line: &Value) {
    let request = format!("{} {}", text(line, "method"), text(line, "path"));
    let mark = if is_expected(case, answer, line) { "" } else { "   UNEXPECTED" };
    println!("  {request:<16} {:<32} {:<7} {}{mark}", case.what, answer.status, decided_by(line));
}

/// Who decided a request, in the words of the access log.
fn decided_by(line: &Value) -> String {
    let account = text(line, "decision");
    let field = |key: &str| account.split(' ').find_map(|pair| pair.strip_prefix(key));
    match (field("step="), field("reason="), field("consumer=")) {
        (Some(step), Some(reason), _) => format!("step {step}: {reason}"),
        (_, _, Some(consumer)) => format!("all steps passed, consumer {consumer}"),
        _ if field("verdict=").is_some() => "all steps passed".to_owned(),
        _ if status(line) == 404 => "Envoy: no such route".to_owned(),
        _ => "nobody: no policy on this route".to_owned(),
    }
}

fn text<'a>(line: &'a Value, field: &str) -> &'a str {
    line.get(field).and_then(Value::as_str).unwrap_or("-")
}

/// The status of a line of the access log.
fn status(line: &Value) -> u64 {
    line.get("status").and_then(Value::as_u64).unwrap_or_default()
}

/// A line of the control plane's log that tells of a change, without its time and level.
fn change(line: &str) -> Option<&str> {
    let (_, rest) = line.split_once(": ")?;
    (rest.contains("in force") || rest.contains("refused") || rest.contains("accepted")).then_some(rest)
}

fn is_free(port: u16) -> bool {
    TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).is_ok()
}

/// Becomes true when somebody wants this to end. From now on a signal no longer ends the process by itself, so that
/// the guards of its children are always dropped.
fn stop_on_signals() -> Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    let _context = runtime.enter();
    let mut signals = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
        .map(signal)
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    drop(_context);
    thread::spawn(move || {
        runtime.block_on(async {
            if let [interrupt, terminate, hangup] = signals.as_mut_slice() {
                tokio::select! { _ = interrupt.recv() => {} _ = terminate.recv() => {} _ = hangup.recv() => {} }
            }
        });
        told.store(true, Ordering::Relaxed);
    });
    Ok(stop)
}
