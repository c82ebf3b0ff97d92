#pragma once

namespace automodel::report {

/// The page's style sheet. Runs' colours (Okabe and Ito's, which most people tell apart) are c0 to
/// c7, lighter in the dark; the ninth run on is dashed.
inline constexpr const char* kStyle = R"css(
:root{color-scheme:light dark;--ground:#fff;--text:#1b1f24;--soft:#59636e;--line:#d9dee3;--panel:#f6f8fa;
--c0:#0072b2;--c1:#d55e00;--c2:#007d5a;--c3:#b0457f;--c4:#8a6a00;--c5:#2b87c2;--c6:#3b3b3b;--c7:#a23b2a;--bad:#c62828;--even:#e9edf1;--rest:#b4bdc7}
@media(prefers-color-scheme:dark){:root{--ground:#14181d;--text:#e3e7ec;--soft:#9aa5b1;--line:#333b45;--panel:#1c222a;
--c0:#5ab4e8;--c1:#ff9248;--c2:#3fcf9f;--c3:#e58ac0;--c4:#e8c547;--c5:#9ad1ff;--c6:#c9c9c9;--c7:#f0907f;--bad:#ff6b6b;--even:#39424d;--rest:#5a6572}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:78rem;padding:1rem 1.2rem 3rem;background:var(--ground);color:var(--text);
font:15px/1.45 system-ui,sans-serif}
h1{font-size:1.5rem;margin:.4rem 0 1rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;margin:2rem 0 .6rem;border-bottom:1px solid var(--line);padding-bottom:.2rem}
h3{font-size:1rem;margin:1.2rem 0 .4rem;overflow-wrap:anywhere}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.87rem}
th,td{text-align:left;vertical-align:top;padding:.22rem .7rem .22rem 0;border-bottom:1px solid var(--line);
overflow-wrap:anywhere;min-width:5rem}
@media(max-width:40rem){svg text{font-size:18px!important}th,td{min-width:8rem}}
th{font-weight:600}tbody th{min-width:8.5rem;color:var(--soft);font-weight:400}
.numbers th,.numbers td{min-width:0;overflow-wrap:normal;padding-right:1rem}.numbers th:not(:first-child){text-align:right}.numbers tbody th{min-width:6.5rem}
.events th,.events td{min-width:0;overflow-wrap:normal}.events td:last-child{min-width:18rem;overflow-wrap:anywhere}
@media(max-width:40rem){.events,.events tbody{display:block}.events thead{display:none}
.events tr{display:grid;grid-template-columns:auto 1fr auto;gap:0 .8rem;padding:.25rem 0;border-bottom:1px solid var(--line)}
.events td{border:0;padding:0}.events td:last-child{grid-column:1/4;min-width:0}}
td.number{text-align:right;font-variant-numeric:tabular-nums}
.switches{position:sticky;top:0;background:var(--ground);padding:.5rem 0;display:flex;flex-wrap:wrap;gap:.3rem 1rem;
border-bottom:1px solid var(--line);z-index:1}
fieldset{border:0;margin:0;padding:0;display:flex;flex-wrap:wrap;gap:.3rem .4rem;align-items:center;min-width:0}
fieldset legend{float:left;padding:0;color:var(--soft)}
.switches label{border:1px solid var(--line);border-radius:.4rem;padding:.12rem .6rem;cursor:pointer}
.switch{position:absolute;opacity:0;pointer-events:none}
.switch:checked+label{background:var(--text);color:var(--ground)}
.switch:focus-visible+label{outline:3px solid var(--c0);outline-offset:1px}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:.7rem 0;padding:0;list-style:none}
.legend svg{width:1.8rem;height:.7rem;margin-right:.4rem;overflow:visible}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:.4rem 1.4rem}
figure{margin:.6rem 0;min-width:0}figcaption{font-weight:600}
svg{width:100%;height:auto;display:block}figure svg{overflow:visible}
.legend svg{display:inline-block}
svg path{fill:none}svg text{font-size:12px;fill:var(--soft)}
.axis path{stroke:var(--line)}
.raw{stroke:currentColor;stroke-opacity:.85;stroke-width:1.3;stroke-linejoin:round}
.key{stroke:currentColor;stroke-width:3}
.smooth{stroke:currentColor;stroke-width:2.4;stroke-linejoin:round}
.dashed .smooth,.dashed .raw,.dashed .key{stroke-dasharray:6 3}
.dots{stroke:currentColor;stroke-width:6}.dots.disc{stroke-linecap:round}.dots.square{stroke-linecap:square;stroke-width:5}
svg path.dots.filled{fill:currentColor;stroke-width:1}
.mark path{stroke:currentColor;stroke-width:1.3}.mark .glyph{stroke-width:1.6;stroke-linejoin:round}
svg .mark .glyph[d*=z],svg.mark .glyph[d*=z]{fill:currentColor}
.mark .resume{stroke-dasharray:2 4}.mark .failure{stroke-dasharray:6 2}.mark .rollback{stroke-dasharray:8 3 2 3}
.mark .preempted{stroke-dasharray:10 4}.mark.failed{color:var(--bad)}
svg path.bad{fill:var(--bad)}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}
.c4{color:var(--c4)}.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}
.rest{color:var(--rest)}
.bar{height:1.3rem;border-radius:.3rem;overflow:hidden;background:var(--panel);margin:.3rem 0;max-width:48rem}
.bar rect,.histogram rect{fill:currentColor}
.stacked{height:8rem;max-width:48rem;background:var(--panel)}.stacked path{fill:currentColor}
.histogram,.heat,.over-time{max-width:48rem}.histogram .base{stroke:var(--line)}.legend .heat{stroke:var(--line);stroke-width:.5}
.heat path.low3{fill:#08519c}.heat path.low2{fill:#4292c6}.heat path.low1{fill:#9ecae1}.heat path.even{fill:var(--even)}
.heat path.high1{fill:#fdae6b}.heat path.high2{fill:#e6550d}.heat path.high3{fill:#8c2d04}
.caption{margin:.5rem 0 .1rem;color:var(--soft)}.advice{margin:.3rem 0;padding-left:1.2rem}.advice li{margin:.25rem 0}
.warning{border:1px solid var(--c4);border-left-width:.4rem;border-radius:.3rem;padding:.4rem .8rem;overflow-wrap:anywhere}
.told td:nth-child(2){font-weight:600}td.when{white-space:nowrap;font-variant-numeric:tabular-nums}
nav a{color:var(--soft)}#live:empty{display:none}
.note{color:var(--soft)}
.failure{color:var(--bad);font-weight:600}
summary{cursor:pointer;margin:.4rem 0}
.by-tokens,.by-time,.log,.smooth{display:none}
:root:has(#x-tokens:checked) .by-step,:root:has(#x-time:checked) .by-step{display:none}
:root:has(#x-tokens:checked) .by-tokens.linear,:root:has(#x-time:checked) .by-time.linear{display:block}
:root:has(#y-log:checked) .linear{display:none!important}
:root:has(#y-log:checked):has(#x-step:checked) .by-step.log,
:root:has(#y-log:checked):has(#x-tokens:checked) .by-tokens.log,
:root:has(#y-log:checked):has(#x-time:checked) .by-time.log{display:block}
:root:has(#smooth:checked) .smooth{display:inline}:root:has(#smooth:checked) .raw{stroke-opacity:.28}
@media print{:root{color-scheme:light;--ground:#fff;--text:#000;--soft:#444;--line:#bbb;--panel:#f2f2f2;--even:#e8e8e8;--rest:#b4bdc7;
--c0:#0072b2;--c1:#d55e00;--c2:#007d5a;--c3:#b0457f;--c4:#8a6a00;--c5:#2b87c2;--c6:#3b3b3b;--c7:#a23b2a;--bad:#c62828}
.switches,nav{display:none}body{max-width:none;font-size:10pt;padding:0}figure,tr,svg{break-inside:avoid}h2,h3{break-after:avoid}
.bar,.stacked,.heat,.histogram{print-color-adjust:exact}.wide{overflow:visible}
details::details-content{content-visibility:visible;height:auto}details>:not(summary){display:block!important}}
)css";

}  // namespace automodel::report
