//! Transport sockets: TLS of listeners and clusters. They refer to secrets by name, and contain none.

use envoy_types::pb::{
    envoy::{
        config::core::v3::{TransportSocket, transport_socket::ConfigType},
        extensions::transport_sockets::tls::v3::{
            CommonTlsContext, DownstreamTlsContext, SdsSecretConfig, UpstreamTlsContext,
            common_tls_context::ValidationContextType,
        },
    },
    google::protobuf::{Any, BoolValue},
};
use postern_model::{Protocol, UpstreamTls};

use super::{
    any,
    filter::from_the_control_plane,
    secret::{self, Names},
};
use crate::port::Door;

/// TLS on the listener's side. `None` if connections are in the clear.
pub(super) fn downstream(door: &Door<'_>) -> Option<TransportSocket> {
    let tls = door.listener.tls.as_ref()?;
    let clients = tls.clients(door.certificate);
    let names = secret::of_door(&door.gateway.name, &door.listener.name, door.certificate);
    let common = CommonTlsContext {
        alpn_protocols: vec!["h2".to_owned(), "http/1.1".to_owned()],
        ..context(names, true, clients.authorities.is_some())
    };
    Some(socket(any(&DownstreamTlsContext {
        common_tls_context: Some(common),
        require_client_certificate: Some(BoolValue { value: clients.required }),
        ..Default::default()
    })))
}

/// TLS on the side of a cluster.
pub(super) fn upstream(service: &str, tls: &UpstreamTls, protocol: Protocol) -> TransportSocket {
    let alpn = match protocol {
        Protocol::Http1 => "http/1.1",
        Protocol::Http2 => "h2",
    };
    let common = CommonTlsContext {
        alpn_protocols: vec![alpn.to_owned()],
        ..context(secret::of_service(service), tls.identity.is_some(), true)
    };
    socket(any(&UpstreamTlsContext {
        common_tls_context: Some(common),
        sni: tls.server_name.clone().unwrap_or_default(),
        ..Default::default()
    }))
}

fn context(names: Names, has_identity: bool, checks_peers: bool) -> CommonTlsContext {
    CommonTlsContext {
        tls_certificate_sds_secret_configs: has_identity.then(|| by_sds(names.identity)).into_iter().collect(),
        validation_context_type: checks_peers
            .then(|| ValidationContextType::ValidationContextSdsSecretConfig(by_sds(names.peers))),
        ..Default::default()
    }
}

fn by_sds(name: String) -> SdsSecretConfig {
    SdsSecretConfig { name, sds_config: Some(from_the_control_plane()) }
}

fn socket(context: Any) -> TransportSocket {
    TransportSocket {
        name: "envoy.transport_sockets.tls".to_owned(),
        config_type: Some(ConfigType::TypedConfig(context)),
    }
}
