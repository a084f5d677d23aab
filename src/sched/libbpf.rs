//! libbpf's own messages: kept, and shown only when something fails.

use std::sync::Mutex;

use libbpf_rs::{PrintLevel, set_print};

static KEPT: Mutex<String> = Mutex::new(String::new());

/// Keeps what libbpf prints from now on instead of printing it.
pub fn keep_messages() {
    set_print(Some((PrintLevel::Info, keep)));
}

fn keep(_: PrintLevel, message: String) {
    if let Ok(mut kept) = KEPT.lock() {
        kept.push_str(&message);
    }
}

/// What was kept, which is then forgotten.
pub fn take_messages() -> String {
    KEPT.lock().map(|mut kept| std::mem::take(&mut *kept)).unwrap_or_default()
}
