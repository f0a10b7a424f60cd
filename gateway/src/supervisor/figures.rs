//! What the portal says of itself, in the words of the status.

use crate::{portal, status};

pub(super) fn session(info: &portal::SessionInfo) -> status::Session {
    status::Session {
        initiator: info.initiator.clone(),
        target: info.target.clone().unwrap_or_else(|| "(discovery)".into()),
        peer: info.peer.to_string(),
        authenticated: info.authenticated,
        header_digest: info.digests.0,
        data_digest: info.digests.1,
        age_seconds: info.since.elapsed().unwrap_or_default().as_secs(),
    }
}

pub(super) fn portal_figures(stats: &portal::Stats) -> status::Portal {
    status::Portal {
        pdus_in: stats.pdus_in,
        pdus_out: stats.pdus_out,
        rejects: stats.rejects,
        digest_errors: stats.digest_errors,
        logins: stats.logins,
        login_failures: stats.login_failures.values().sum(),
        bytes_copied: stats.bytes_copied,
    }
}
