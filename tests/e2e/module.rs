//! The filter's module itself: its size, its imports and its exports.

use postern_tests::control_plane::from_environment;
use wasmparser::{ExternalKind, Parser, Payload};

const CEILING: usize = 1_000_000;

#[test]
fn is_small_and_imports_and_exports_only_what_it_uses() {
    let code = std::fs::read(from_environment("POSTERN_FILTER").unwrap()).unwrap();
    assert!(code.len() < CEILING, "{} bytes", code.len());
    let (mut imports, mut exports) = (Vec::new(), Vec::new());
    for payload in Parser::new(0).parse_all(&code) {
        match payload.unwrap() {
            Payload::ImportSection(section) => {
                imports.extend(section.into_iter().map(|import| import.unwrap().name.to_owned()));
            }
            Payload::ExportSection(section) => {
                let functions = section.into_iter().map(|export| export.unwrap());
                exports.extend(functions.filter(|export| export.kind == ExternalKind::Func).map(|e| e.name.to_owned()));
            }
            _ => {}
        }
    }
    imports.sort();
    exports.sort();
    assert_eq!(
        imports,
        [
            "proxy_add_header_map_value",
            "proxy_call_foreign_function",
            "proxy_continue_stream",
            "proxy_define_metric",
            "proxy_get_buffer_bytes",
            "proxy_get_current_time_nanoseconds",
            "proxy_get_header_map_pairs",
            "proxy_get_property",
            "proxy_get_shared_data",
            "proxy_grpc_call",
            "proxy_http_call",
            "proxy_increment_metric",
            "proxy_log",
            "proxy_remove_header_map_value",
            "proxy_replace_header_map_value",
            "proxy_send_local_response",
            "proxy_set_effective_context",
            "proxy_set_property",
            "proxy_set_shared_data",
            "proxy_set_tick_period_milliseconds",
            "random_get",
        ]
    );
    assert_eq!(
        exports,
        [
            "proxy_abi_version_0_2_1",
            "proxy_on_configure",
            "proxy_on_context_create",
            "proxy_on_delete",
            "proxy_on_grpc_close",
            "proxy_on_grpc_receive",
            "proxy_on_http_call_response",
            "proxy_on_memory_allocate",
            "proxy_on_request_body",
            "proxy_on_request_headers",
            "proxy_on_request_trailers",
            "proxy_on_response_headers",
            "proxy_on_tick",
        ]
    );
}
