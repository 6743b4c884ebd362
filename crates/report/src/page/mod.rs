//! Pages: one HTML file each, which needs no network and can be sent to a colleague.
//!
//! [`document`] is the frame of every page: one stylesheet, and, for pages with pictures, one
//! script with the data that it draws. The static part (facts, tables, notes) is complete without
//! the script. A policy in the page forbids everything else: the browser runs only the script with
//! the hash that the page names, and loads nothing. `maud` escapes all names, and the data's only
//! markup character is escaped, too. So are control characters (`controls`).
//!
//! # Picture
//! ```text
//! Timeline ─┬─▶ data ──▶ JSON in the page ──▶ script/*.js ──▶ canvases, flame graph, clusters
//!           └─▶ facts, tables ──▶ maud ──▶ static HTML
//! ```

mod columns;
mod controls;
mod data;
mod explorer;
mod facts;
mod graph;
pub mod parts;
mod replayed;
mod still;

pub use data::Names;
pub use replayed::Replayed;
pub use still::Still;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

const STYLE: &str = include_str!("style.css");

/// What every page runs: tables that can be sorted and copied.
const TABLES: [&str; 2] = [
    include_str!("script/dom.js"),
    include_str!("script/tables.js"),
];

/// What pages with pictures run besides, in this order.
const PICTURES: [&str; 15] = [
    include_str!("script/data.js"),
    include_str!("script/state.js"),
    include_str!("script/plot.js"),
    include_str!("script/axis.js"),
    include_str!("script/colours.js"),
    include_str!("script/raster.js"),
    include_str!("script/map.js"),
    include_str!("script/lanes.js"),
    include_str!("script/counts.js"),
    include_str!("script/moment.js"),
    include_str!("script/apart.js"),
    include_str!("script/flame.js"),
    include_str!("script/graph.js"),
    include_str!("script/list.js"),
    include_str!("script/main.js"),
];

/// The data of a page with pictures, as JSON.
#[derive(Clone, Debug)]
pub struct Pictures {
    data: String,
}

/// Returns a whole page.
pub fn document(title: &str, body: &Markup, pictures: Option<&Pictures>) -> String {
    let more = if pictures.is_some() {
        &PICTURES[..]
    } else {
        &[]
    };
    let parts = [&TABLES[..], more].concat().join("\n");
    let script = format!("(() => {{\n'use strict';\n{parts}\n}})();");
    let policy = format!(
        "default-src 'none'; style-src '{}'; script-src '{}'; base-uri 'none'; form-action 'none'",
        hash(STYLE),
        hash(&script)
    );
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy" content=(policy);
                title { (controls::in_text(title)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                a.skip href="#content" { "Skip to the content" }
                main #content { (controls::in_markup(body)) }
                @if let Some(Pictures { data }) = pictures {
                    script type="application/json" id="data" { (PreEscaped(data)) }
                }
                script { (PreEscaped(&script)) }
            }
        }
    };
    page.into_string()
}

/// Returns the hash of an inline script or style, as a content security policy names it.
fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}
