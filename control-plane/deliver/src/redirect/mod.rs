//! Rewrites generated resources for Envoys without an aggregated stream: where a resource refers to ADS, it must refer
//! to streams for single types, to polling or to files. Envoy has no config source that means "where this came from".

mod place;

use std::{path::PathBuf, sync::Arc};

use envoy_types::pb::{
    envoy::config::core::v3::{
        ApiConfigSource, ApiVersion, ConfigSource, GrpcService, PathConfigSource,
        api_config_source::ApiType,
        config_source::ConfigSourceSpecifier,
        grpc_service::{EnvoyGrpc, TargetSpecifier},
    },
    google::protobuf::{Any, Duration},
};
use postern_base::digest::Digest;
use postern_compile::snapshot::{Author, Resource, ResourceType};
use postern_model::protobuf_json::{self, WriteError};
use prost::{Message, Name};
use prost_reflect::{DynamicMessage, ReflectMessage, Value};
use serde_json::Value as Json;

pub(crate) use self::place::folder;
pub use self::place::place;

/// The polling interval in config sources of polled resources. That of the first poll is in the bootstrap, which we do
/// not know.
const POLL_PERIOD: Duration = Duration { seconds: 1, nanos: 0 };

/// Where an Envoy gets resources from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// From a stream for each type. Envoy knows us as this cluster.
    Streams {
        /// The cluster.
        cluster: String,
        /// Whether streams are incremental, instead of state of the world.
        incremental: bool,
    },
    /// By polling. Envoy knows us as this cluster.
    Poll {
        /// The cluster.
        cluster: String,
    },
    /// From files in this directory.
    Files {
        /// The directory, as Envoy sees it.
        directory: PathBuf,
    },
}

impl Source {
    /// A resource in wire format, with every use of ADS replaced by this source. A user's raw resource is not changed.
    pub fn rewrite(&self, resource: &Resource) -> Result<Any, WriteError> {
        match resource.author {
            Author::User => Ok(resource.body.clone()),
            Author::Postern => {
                let mut message = protobuf_json::dynamic(&resource.body)?;
                self.redirect(&mut message, "")?;
                Ok(Any { value: message.encode_to_vec(), ..resource.body.clone() })
            }
        }
    }

    /// Like [`Self::rewrite`], as JSON.
    pub fn encode(&self, resource: &Resource) -> Result<Json, WriteError> {
        match resource.author {
            Author::User => protobuf_json::write(&resource.body),
            Author::Postern => {
                let mut message = protobuf_json::dynamic(&resource.body)?;
                self.redirect(&mut message, "")?;
                protobuf_json::write_dynamic(&resource.body.type_url, &message)
            }
        }
    }

    /// Replaces every use of ADS in a message. `around` is the name of the nearest enclosing message that has one.
    fn redirect(&self, message: &mut DynamicMessage, around: &str) -> Result<(), WriteError> {
        if message.descriptor().full_name() == Any::full_name() {
            return self.redirect_any(message, around);
        }
        let name = text(message, "name").unwrap_or_else(|| around.to_owned());
        let wanted = wanted(message, around);
        for (_, value) in message.fields_mut() {
            match (value, &wanted) {
                (Value::Message(inner), Some((kind, wanted))) if is_config_source(inner) => {
                    self.replace_ads(inner, *kind, wanted)?;
                }
                (Value::Message(inner), _) => self.redirect(inner, &name)?,
                (Value::List(items), _) => self.redirect_all(items.iter_mut(), &name)?,
                (Value::Map(entries), _) => self.redirect_all(entries.values_mut(), &name)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn redirect_all<'v>(&self, values: impl Iterator<Item = &'v mut Value>, around: &str) -> Result<(), WriteError> {
        for value in values {
            if let Value::Message(inner) = value {
                self.redirect(inner, around)?;
            }
        }
        Ok(())
    }

    fn redirect_any(&self, message: &mut DynamicMessage, around: &str) -> Result<(), WriteError> {
        let any: Any = message.transcode_to().map_err(undecodable)?;
        if any.type_url.is_empty() {
            return Ok(());
        }
        let mut inner = protobuf_json::dynamic(&any)?;
        self.redirect(&mut inner, around)?;
        message.transcode_from(&Any { value: inner.encode_to_vec(), ..any }).map_err(undecodable)
    }

    fn replace_ads(&self, source: &mut DynamicMessage, kind: ResourceType, name: &str) -> Result<(), WriteError> {
        let mut config: ConfigSource = source.transcode_to().map_err(undecodable)?;
        if let Some(ConfigSourceSpecifier::Ads(_)) = config.config_source_specifier {
            config.config_source_specifier = Some(self.specifier(kind, name));
            source.transcode_from(&config).map_err(undecodable)?;
        }
        Ok(())
    }

    fn specifier(&self, kind: ResourceType, name: &str) -> ConfigSourceSpecifier {
        match self {
            Self::Streams { cluster, incremental } => ConfigSourceSpecifier::ApiConfigSource(ApiConfigSource {
                api_type: if *incremental { ApiType::DeltaGrpc } else { ApiType::Grpc }.into(),
                transport_api_version: ApiVersion::V3.into(),
                grpc_services: vec![GrpcService {
                    target_specifier: Some(TargetSpecifier::EnvoyGrpc(EnvoyGrpc {
                        cluster_name: cluster.clone(),
                        ..Default::default()
                    })),
                    ..Default::default()
                }],
                ..Default::default()
            }),
            Self::Poll { cluster } => ConfigSourceSpecifier::ApiConfigSource(ApiConfigSource {
                api_type: ApiType::Rest.into(),
                transport_api_version: ApiVersion::V3.into(),
                cluster_names: vec![cluster.clone()],
                refresh_delay: Some(POLL_PERIOD),
                ..Default::default()
            }),
            Self::Files { directory } => ConfigSourceSpecifier::PathConfigSource(PathConfigSource {
                path: directory.join(place(kind, name)).display().to_string(),
                ..Default::default()
            }),
        }
    }
}

/// A `DiscoveryResponse` of resources that are JSON already.
pub(crate) fn response(kind: ResourceType, version: &Digest, resources: &[Arc<str>]) -> String {
    let resources = resources.join(",");
    // Neither a digest nor a type URL needs escaping.
    format!(r#"{{"versionInfo":"{version}","typeUrl":"{}","resources":[{resources}]}}"#, kind.type_url())
}

/// The type and name of the resource that the config sources directly in a message refer to.
fn wanted(message: &DynamicMessage, around: &str) -> Option<(ResourceType, String)> {
    let named = |field| text(message, field).unwrap_or_else(|| around.to_owned());
    match message.descriptor().full_name() {
        "envoy.extensions.filters.network.http_connection_manager.v3.Rds" => {
            Some((ResourceType::RouteConfiguration, named("route_config_name")))
        }
        "envoy.config.cluster.v3.Cluster.EdsClusterConfig" => Some((ResourceType::Endpoints, named("service_name"))),
        "envoy.config.core.v3.ExtensionConfigSource" => Some((ResourceType::ExtensionConfig, around.to_owned())),
        "envoy.extensions.transport_sockets.tls.v3.SdsSecretConfig" => Some((ResourceType::Secret, named("name"))),
        _ => None,
    }
}

fn is_config_source(message: &DynamicMessage) -> bool {
    message.descriptor().full_name() == ConfigSource::full_name()
}

/// A field that is a non-empty string, or `None`.
fn text(message: &DynamicMessage, field: &str) -> Option<String> {
    let value = message.get_field_by_name(field)?;
    value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn undecodable(error: prost::DecodeError) -> WriteError {
    WriteError::Decode { type_url: ConfigSource::type_url(), error }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use postern_model::protobuf_json::{Unknown, read_any};

    /// Checks what a generated resource becomes for each source.
    fn check(written: Json, pointer: &str, expect: Option<&str>) {
        let body = read_any(&written, Unknown::Refused).unwrap();
        let resource = Resource { name: "x".to_owned(), version: Digest::of(b""), body, author: Author::Postern };
        let files = Source::Files { directory: "/xds".into() }.encode(&resource).unwrap();
        let source = files.pointer(pointer).unwrap();
        let poll = Source::Poll { cluster: "postern".to_owned() }.encode(&resource).unwrap();
        match expect {
            Some(path) => {
                assert_eq!(source["pathConfigSource"]["path"], path);
                // Its other fields are kept.
                assert_eq!(source["initialFetchTimeout"], "7s");
                assert_eq!(poll.pointer(pointer).unwrap()["apiConfigSource"]["clusterNames"], json!(["postern"]));
                for (incremental, api) in [(false, "GRPC"), (true, "DELTA_GRPC")] {
                    let source = Source::Streams { cluster: "us".to_owned(), incremental };
                    let found = source.encode(&resource).unwrap();
                    let expect = json!({
                        "apiType": api,
                        "transportApiVersion": "V3",
                        "grpcServices": [{"envoyGrpc": {"clusterName": "us"}}],
                    });
                    assert_eq!(found.pointer(pointer).unwrap()["apiConfigSource"], expect);
                    let body = source.rewrite(&resource).unwrap();
                    assert_eq!(protobuf_json::write(&body).unwrap(), found);
                }
            }
            None => {
                assert_eq!(*source, json!({"ads": {}}));
                assert_eq!(*poll.pointer(pointer).unwrap(), json!({"ads": {}}));
            }
        }
        let by_user = Resource { author: Author::User, ..resource };
        assert_eq!(
            Source::Files { directory: "/xds".into() }.encode(&by_user).unwrap(),
            protobuf_json::write(&by_user.body).unwrap()
        );
    }

    fn ads() -> Json {
        json!({"ads": {}, "initial_fetch_timeout": "7s"})
    }

    #[test]
    fn sends_endpoints_to_their_cluster_or_service_name() {
        let cluster = |service: &str| {
            json!({"@type": ResourceType::Cluster.type_url(), "name": "c",
                "eds_cluster_config": {"eds_config": ads(), "service_name": service}})
        };
        check(cluster(""), "/edsClusterConfig/edsConfig", Some("/xds/eds/c.json"));
        check(cluster("s/1"), "/edsClusterConfig/edsConfig", Some("/xds/eds/s%2f1.json"));
    }

    #[test]
    fn sends_secrets_to_their_name() {
        let context = json!({
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": {"tls_certificate_sds_secret_configs": [{"name": "cert", "sds_config": ads()}]},
        });
        let chain = json!({"transport_socket": {"name": "tls", "typed_config": context}});
        let listener = json!({"@type": ResourceType::Listener.type_url(), "name": "l", "filter_chains": [chain]});
        let pointer =
            "/filterChains/0/transportSocket/typedConfig/commonTlsContext/tlsCertificateSdsSecretConfigs/0/sdsConfig";
        check(listener, pointer, Some("/xds/sds/cert.json"));
    }

    #[test]
    fn sends_extensions_to_the_name_of_their_filter() {
        let filter = json!({"name": "f", "config_discovery": {"config_source": ads(), "type_urls": ["x"]}});
        let listener = json!({"@type": ResourceType::Listener.type_url(), "name": "l", "listener_filters": [filter]});
        check(listener, "/listenerFilters/0/configDiscovery/configSource", Some("/xds/ecds/f.json"));
    }

    #[test]
    fn leaves_alone_what_only_looks_like_a_source() {
        let metadata = json!({"filter_metadata": {"x": {"source": {"ads": {}}}}});
        let cluster = json!({"@type": ResourceType::Cluster.type_url(), "name": "c", "metadata": metadata});
        check(cluster, "/metadata/filterMetadata/x/source", None);
    }
}
