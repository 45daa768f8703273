//! Prepares the descriptors of Envoy's messages for `protobuf_json`. The crate `envoy-types` contains them as a file
//! without an API for it, so the file is looked up in cargo's copy of the crate.

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use prost::Message;
use prost_reflect::{
    DescriptorPool,
    prost_types::{
        DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet,
        field_descriptor_proto::{Label, Type},
    },
};

const CRATE: &str = "envoy-types";

fn main() -> Result<(), Box<dyn Error>> {
    let descriptors = envoy_types()?.join("src/generated/types.bin");
    for input in ["build.rs", "../../Cargo.lock"] {
        println!("cargo::rerun-if-changed={input}");
    }
    println!("cargo::rerun-if-changed={}", descriptors.display());
    let bytes = fs::read(&descriptors).map_err(|error| format!("{}: {error}", descriptors.display()))?;
    let mut set = FileDescriptorSet::decode(bytes.as_slice())?;
    for file in &mut set.file {
        // Comments are four fifths of the file.
        file.source_code_info = None;
        file.service.clear();
    }
    set.file.extend(["xds.type.v3", "udpa.type.v1"].map(typed_struct));
    let bytes = set.encode_to_vec();
    // Wrong descriptors must fail the build, not the program.
    DescriptorPool::decode(bytes.as_slice())?;
    fs::write(Path::new(&env::var("OUT_DIR")?).join("envoy.bin"), bytes)?;
    Ok(())
}

/// The folder with the sources of `envoy-types`, by `cargo metadata`. Works offline if the workspace's dependencies
/// were fetched; otherwise cargo may use the network.
fn envoy_types() -> Result<PathBuf, Box<dyn Error>> {
    let metadata = metadata(&["--offline"]).or_else(|_| metadata(&[]))?;
    let packages = metadata.get("packages").and_then(|packages| packages.as_array()).into_iter().flatten();
    let manifest = packages
        .filter(|package| package.get("name").is_some_and(|name| name == CRATE))
        .find_map(|package| package.get("manifest_path")?.as_str())
        .ok_or_else(|| format!("cargo knows no package {CRATE}"))?;
    Ok(Path::new(manifest).parent().unwrap_or(Path::new("")).to_owned())
}

fn metadata(options: &[&str]) -> Result<serde_json::Value, Box<dyn Error>> {
    let manifest = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("Cargo.toml");
    let mut command = Command::new(env::var("CARGO")?);
    command.args(["metadata", "--format-version=1", "--locked", "--filter-platform", &env::var("TARGET")?]);
    let output = command.args(options).arg("--manifest-path").arg(manifest).output()?;
    if !output.status.success() {
        return Err(format!("cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The descriptor of `TypedStruct` in a package, the configuration of an extension of unknown type. `envoy-types` omits
/// it.
fn typed_struct(package: &str) -> FileDescriptorProto {
    let field = |name: &str, number, kind: Type, type_name: Option<&str>| FieldDescriptorProto {
        name: Some(name.to_owned()),
        number: Some(number),
        label: Some(Label::Optional.into()),
        r#type: Some(kind.into()),
        type_name: type_name.map(str::to_owned),
        ..Default::default()
    };
    let fields = vec![
        field("type_url", 1, Type::String, None),
        field("value", 2, Type::Message, Some(".google.protobuf.Struct")),
    ];
    FileDescriptorProto {
        name: Some(format!("{}/typed_struct.proto", package.replace('.', "/"))),
        package: Some(package.to_owned()),
        dependency: vec!["google/protobuf/struct.proto".to_owned()],
        message_type: vec![DescriptorProto {
            name: Some("TypedStruct".to_owned()),
            field: fields,
            ..Default::default()
        }],
        syntax: Some("proto3".to_owned()),
        ..Default::default()
    }
}
