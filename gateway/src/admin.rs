//! The local HTTP port: `/metrics` for Prometheus, `/health` for whoever restarts what is not well.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State as Shared;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::metrics::{self, Source};
use crate::status::State;

struct Ends {
    source: Source,
    registry: Registry,
}

/// Binds the port.
pub async fn bind(listen: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(listen).await
}

/// Serves until it is dropped.
pub async fn serve(listener: TcpListener, source: Source) -> std::io::Result<()> {
    let ends = Arc::new(Ends { registry: metrics::registry(Arc::clone(&source)), source });
    let router = Router::new().route("/metrics", get(scrape)).route("/health", get(health)).with_state(ends);
    axum::serve(listener, router).await
}

async fn scrape(Shared(ends): Shared<Arc<Ends>>) -> impl IntoResponse {
    let mut text = String::new();
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match prometheus_client::encoding::text::encode(&mut text, &ends.registry) {
        Ok(()) => (StatusCode::OK, [(header::CONTENT_TYPE, kind)], text),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], error.to_string())
        }
    }
}

/// 200 when every LUN can serve, 503 with a line for each that cannot.
async fn health(Shared(ends): Shared<Arc<Ends>>) -> impl IntoResponse {
    let status = (ends.source)();
    let mut down = String::new();
    for lun in &status.luns {
        match &lun.state {
            State::Online => {}
            State::Unavailable(reason) | State::Failed(reason) => {
                down += &format!("{} LUN {} ({}): {reason}\n", lun.target, lun.lun, lun.disk);
            }
        }
    }
    if down.is_empty() { (StatusCode::OK, "ok\n".into()) } else { (StatusCode::SERVICE_UNAVAILABLE, down) }
}
