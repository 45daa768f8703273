//! Directories with other things than regular files. Links, FIFOs and devices neither block a command nor are read
//! without end, and each error names the file.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::{Duration, Instant},
};

use postern_tests::{Client, ControlPlane, Site, Upstream, process::Process, wait};
use tempfile::TempDir;

/// A directory with the resources of the quickstart.
fn directory() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let upstream = Upstream::start(0).unwrap();
    let site = Site::quickstart(directory.path().join("policies"), upstream.address(), 0).unwrap();
    let path = site.directory().to_owned();
    (directory, path)
}

fn fifo(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
}

/// Runs a command to its end, which must come soon.
fn run(arguments: &[&str]) -> Output {
    let mut command = ControlPlane::command().unwrap();
    let begin = Instant::now();
    let mut process = Process::start("postern", command.args(arguments)).unwrap();
    wait::until_true("the end of the command", || Ok(process.exit_code()?.is_some())).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(30));
    drop(process);
    command.output().unwrap()
}

#[track_caller]
fn refused(directory: &Path, expect: &str) {
    let directory = directory.to_str().unwrap();
    for arguments in [&["validate", directory][..], &["apply", directory, "--server", "127.0.0.1:1"]] {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(expect), "{arguments:?}: `{expect}` is not in:\n{said}");
    }
}

#[test]
fn hole_16_a_fifo_or_a_device_is_an_error_that_names_it() {
    let (_guard, policies) = directory();
    let odd = policies.join("odd.yaml");
    fifo(&odd);
    refused(&policies, "odd.yaml: not a regular file: only regular files are read");
    fs::remove_file(&odd).unwrap();
    let key = policies.join("odd.pem");
    fifo(&key);
    refused(&policies, "odd.pem: not a regular file");
    fs::remove_file(&key).unwrap();
    for device in ["/dev/zero", "/dev/tty", "/dev/stdin"] {
        symlink(device, &odd).unwrap();
        refused(&policies, "odd.yaml: ");
        fs::remove_file(&odd).unwrap();
    }
    // What has no name that would be read is left alone.
    fifo(&policies.join("pipe"));
    let output = run(&["validate", policies.to_str().unwrap()]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn hole_16_a_link_stays_inside_and_leads_in_no_circle() {
    let (guard, policies) = directory();
    symlink(".", policies.join("again")).unwrap();
    refused(&policies, "again: the link leads to a folder that it is in");
    fs::remove_file(policies.join("again")).unwrap();
    symlink("/", policies.join("all")).unwrap();
    refused(&policies, "all: the link leads out of the directory, to /");
    fs::remove_file(policies.join("all")).unwrap();
    let outside = guard.path().join("secret.yaml");
    fs::write(&outside, "kind: Secret").unwrap();
    symlink(&outside, policies.join("inside.yaml")).unwrap();
    refused(&policies, "inside.yaml: the link leads out of the directory, to ");
}

#[test]
fn hole_16_an_endless_file_is_not_read_to_its_end() {
    let (_guard, policies) = directory();
    let file = fs::File::create(policies.join("huge.yaml")).unwrap();
    // As large as it says, without a byte on the disk.
    file.set_len(1 << 40).unwrap();
    refused(&policies, "huge.yaml: larger than ");
}

/// A volume as Kubernetes mounts a ConfigMap: every file is a link through `..data`, which is replaced as a whole.
#[test]
fn hole_16_a_mounted_volume_is_served_and_followed() {
    let (guard, policies) = directory();
    let volume = guard.path().join("volume");
    let mount = |number: u32, edit: &dyn Fn(String) -> String| {
        let real = volume.join(format!("..{number}"));
        fs::create_dir_all(&real).unwrap();
        for entry in fs::read_dir(&policies).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap();
            fs::write(real.join(name), edit(fs::read_to_string(&path).unwrap())).unwrap();
            let link = volume.join(name);
            if !link.exists() {
                symlink(Path::new("..data").join(name), link).unwrap();
            }
        }
        symlink(format!("..{number}"), volume.join("..data_tmp")).unwrap();
        fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    };
    fs::create_dir(&volume).unwrap();
    symlink("..1", volume.join("..data")).unwrap();
    mount(1, &|text| text);
    let control_plane = ControlPlane::start(&volume).unwrap();
    mount(2, &|text| text.replace("x-guarded-by: postern", "x-guarded-by: volume"));
    wait::until_true("the second revision", || {
        Ok(Client::new(control_plane.http()).get("/api/v1/revisions/2")?.status == 200)
    })
    .unwrap();
    // A FIFO that appears later refuses the change, and what is in force stays.
    fifo(&volume.join("odd.yaml"));
    control_plane
        .wait_for_status("the refusal", |status| status.to_string().contains("odd.yaml: not a regular file"))
        .unwrap();
}
