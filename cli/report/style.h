// The one style sheet of the report: light and dark by the reader's preference.
#pragma once

namespace kvilt::cli::report {

inline constexpr const char* kStyle = R"css(
:root {
  color-scheme: light dark;
  --paper: #fbfaf7; --card: #ffffff; --ink: #1c2127; --muted: #5d6670; --rule: #d9d8d2;
  --grid: #e7e5de; --ref: #9a3412;
  --c0: #475569; --c1: #b45309; --c2: #0f766e; --c3: #6d28d9; --c4: #be185d;
  --shared: #cfe3e0; --copied: #f3cf9f; --own: #ddd3f5; --empty: #f0efe9;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171b; --card: #1b1f25; --ink: #e6e8ea; --muted: #9aa4ae; --rule: #323841;
    --grid: #272c33; --ref: #fb923c;
    --c0: #a3b1c2; --c1: #f0a23c; --c2: #3fc6b5; --c3: #b59cf7; --c4: #f582b4;
    --shared: #21494a; --copied: #6b4417; --own: #43356b; --empty: #21262c;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Liberation Sans", sans-serif; }
main { max-width: 924px; margin: 0 auto; padding: 56px 32px 72px; }
h1 { font-size: 34px; line-height: 1.2; letter-spacing: -0.015em; margin: 0 0 12px; font-weight: 650; }
h2 { font-size: 22px; line-height: 1.3; letter-spacing: -0.01em; margin: 64px 0 8px; font-weight: 650; }
p { margin: 8px 0 12px; max-width: 72ch; }
.eyebrow { color: var(--muted); font-size: 14px; margin: 0 0 10px; }
.lead { font-size: 18px; color: var(--muted); max-width: 66ch; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(190px, 1fr)); gap: 14px; margin: 30px 0 0; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 8px; padding: 16px 18px; }
.card b { display: block; font-size: 28px; line-height: 1.2; font-weight: 650; letter-spacing: -0.01em; font-variant-numeric: tabular-nums; }
.card span { color: var(--muted); font-size: 14px; line-height: 1.4; display: block; margin-top: 4px; }
figure { margin: 22px 0 10px; overflow-x: auto; }
figure svg { display: block; width: 100%; min-width: 640px; height: auto; }
figcaption { color: var(--muted); font-size: 14px; max-width: 80ch; margin-top: 6px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 14.5px; margin: 14px 0 6px; font-variant-numeric: tabular-nums; }
th { text-align: right; font-weight: 550; color: var(--muted); border-bottom: 1px solid var(--ink); padding: 6px 10px; vertical-align: bottom; }
td { text-align: right; border-bottom: 1px solid var(--rule); padding: 6px 10px; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th:last-child, td:last-child { padding-right: 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 4px 22px; font-size: 14.5px; margin: 16px 0; }
dt { color: var(--muted); } dd { margin: 0; overflow-wrap: anywhere; }
code { font: 13.5px/1.5 ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace; }
svg text { font-size: 13px; fill: var(--ink); font-variant-numeric: tabular-nums; }
svg .tick, svg .note, svg .axis-title { fill: var(--muted); font-size: 12px; }
svg .label { font-weight: 550; }
svg .value { font-size: 12.5px; }
svg .grid { stroke: var(--grid); stroke-width: 1; }
svg .axis { stroke: var(--muted); stroke-width: 1; }
svg .reference { stroke: var(--ref); stroke-width: 1.25; stroke-dasharray: 4 3; }
svg .leader { stroke: var(--muted); stroke-width: 0.75; }
svg .c0 { color: var(--c0); } svg .c1 { color: var(--c1); } svg .c2 { color: var(--c2); }
svg .c3 { color: var(--c3); } svg .c4 { color: var(--c4); }
svg text.c0, svg text.c1, svg text.c2, svg text.c3, svg text.c4 { fill: currentColor; }
svg .mark { fill: currentColor; }
svg .soft { opacity: 0.55; }
svg .faint { opacity: 0.4; }
svg .hollow { fill: var(--paper); stroke: currentColor; stroke-width: 2; }
svg .link { stroke: currentColor; stroke-width: 2; opacity: 0.35; }
svg .curve { fill: none; stroke: currentColor; stroke-width: 2.25; stroke-linejoin: round; }
svg .dashed { stroke-dasharray: 6 4; }
svg .page-shared { fill: var(--shared); } svg .page-copied { fill: var(--copied); }
svg .page-own { fill: var(--own); } svg .page-empty { fill: var(--empty); }
svg .page-text { font-size: 12px; }
@media print { body { background: #fff; } h2, figure { break-inside: avoid; } }
)css";

}  // namespace kvilt::cli::report
