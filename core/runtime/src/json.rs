//! JSON that is read everywhere.

/// Whether these bytes are one JSON value that any reader takes: JSON's grammar also has numbers that no double
/// holds (`1e999`) and escapes that are no character (`"\ud800"`), on which readers differ.
#[must_use]
pub fn is_read_everywhere(json: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(json).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_fit_a_double_and_escapes_are_characters() {
        let good = [
            "1e308",
            "-1.7976931348623157e308",
            "1e-999",
            "18446744073709551616",
            r#""\ud83d\ude00""#,
            r#""\ud7ff\ue000""#,
            r#"{"a":[{"\ud83d\ude00":null},true]}"#,
            " {} ",
        ];
        for json in good {
            assert!(is_read_everywhere(json.as_bytes()), "{json}");
        }
        let bad = [
            "1e309",
            "-1e999",
            r#""\ud800""#,
            r#""\ude00\ud83d""#,
            r#""\ud83d\ud83d""#,
            r#""\ud83dx""#,
            r#"{"a":[{"\ud800":null}]}"#,
            r#"{"a":[1,{"b":1e999}]}"#,
            "{} {}",
            "",
            "{",
            "NaN",
            "'a'",
        ];
        for json in bad {
            assert!(!is_read_everywhere(json.as_bytes()), "{json}");
        }
        assert!(!is_read_everywhere(b"\"\xff\""), "not UTF-8");
    }
}
