#pragma once

namespace automodel::report {

/// The page's style sheet. Runs' colours (Okabe and Ito's, which most people tell apart) are c0 to
/// c7, lighter in the dark; the ninth run on is dashed.
inline constexpr const char* kStyle = R"css(
:root{color-scheme:light dark;--ground:#fff;--text:#1b1f24;--soft:#59636e;--line:#d9dee3;--panel:#f6f8fa;
--c0:#0072b2;--c1:#d55e00;--c2:#007d5a;--c3:#b0457f;--c4:#8a6a00;--c5:#2b87c2;--c6:#3b3b3b;--c7:#a23b2a;--bad:#c62828}
@media(prefers-color-scheme:dark){:root{--ground:#14181d;--text:#e3e7ec;--soft:#9aa5b1;--line:#333b45;--panel:#1c222a;
--c0:#5ab4e8;--c1:#ff9248;--c2:#3fcf9f;--c3:#e58ac0;--c4:#e8c547;--c5:#9ad1ff;--c6:#c9c9c9;--c7:#f0907f;--bad:#ff6b6b}}
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
th{font-weight:600}tbody th{color:var(--soft);font-weight:400}
td.number{text-align:right;font-variant-numeric:tabular-nums}
.switches{position:sticky;top:0;background:var(--ground);padding:.5rem 0;display:flex;flex-wrap:wrap;gap:.3rem .4rem;
border-bottom:1px solid var(--line);z-index:1}
.switches label{border:1px solid var(--line);border-radius:.4rem;padding:.12rem .6rem;cursor:pointer}
.switches span{color:var(--soft);margin:0 .1rem 0 .5rem;align-self:center}
.switch{position:absolute;opacity:0;pointer-events:none}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;margin:.7rem 0;padding:0;list-style:none}
.legend svg{width:1.8rem;height:.7rem;margin-right:.4rem;overflow:visible}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));gap:.4rem 1.4rem}
figure{margin:.6rem 0;min-width:0}figcaption{font-weight:600}
svg{width:100%;height:auto;display:block}
.legend svg{display:inline-block}
svg path{fill:none}svg text{font-size:12px;fill:var(--soft)}
.axis path{stroke:var(--line)}
.raw{stroke:currentColor;stroke-opacity:.85;stroke-width:1.3;stroke-linejoin:round}
.key{stroke:currentColor;stroke-width:3}
.smooth{stroke:currentColor;stroke-width:2.4;stroke-linejoin:round}
.dashed .smooth,.dashed .raw,.dashed .key{stroke-dasharray:6 3}
circle{fill:currentColor;stroke:var(--ground)}
.mark{stroke:currentColor;stroke-dasharray:2 4;stroke-opacity:.8}
svg path.bad{fill:var(--bad)}
.c0{color:var(--c0)}.c1{color:var(--c1)}.c2{color:var(--c2)}.c3{color:var(--c3)}
.c4{color:var(--c4)}.c5{color:var(--c5)}.c6{color:var(--c6)}.c7{color:var(--c7)}
.bar{height:1.3rem;border-radius:.3rem;overflow:hidden;background:var(--panel);margin:.3rem 0;max-width:48rem}
.bar rect{fill:currentColor}
nav a{color:var(--soft)}#live:empty{display:none}
.note{color:var(--soft)}.mark.failed{stroke:var(--bad);stroke-dasharray:6 2}
.failure{color:var(--bad);font-weight:600}
summary{cursor:pointer;margin:.4rem 0}
.by-tokens,.by-time,.log,.smooth{display:none}
#x-tokens:checked~main .by-step,#x-time:checked~main .by-step{display:none}
#x-tokens:checked~main .by-tokens.linear,#x-time:checked~main .by-time.linear{display:block}
#y-log:checked~main .linear{display:none!important}
#x-step:checked~#y-log:checked~main .by-step.log,#x-tokens:checked~#y-log:checked~main .by-tokens.log,
#x-time:checked~#y-log:checked~main .by-time.log{display:block}
#smooth:checked~main .smooth{display:inline}#smooth:checked~main .raw{stroke-opacity:.28}
#x-step:checked~.switches [for=x-step],#x-tokens:checked~.switches [for=x-tokens],#x-time:checked~.switches [for=x-time],
#y-linear:checked~.switches [for=y-linear],#y-log:checked~.switches [for=y-log],#smooth:checked~.switches [for=smooth]
{background:var(--text);color:var(--ground)}
#x-step:focus-visible~.switches [for=x-step],#x-tokens:focus-visible~.switches [for=x-tokens],
#x-time:focus-visible~.switches [for=x-time],#y-linear:focus-visible~.switches [for=y-linear],
#y-log:focus-visible~.switches [for=y-log],#smooth:focus-visible~.switches [for=smooth]{outline:3px solid var(--c0)}
@media print{:root{--ground:#fff;--text:#000;--soft:#444;--line:#bbb}.switches{display:none}
body{max-width:none;font-size:10pt}figure,tr{break-inside:avoid}h2,h3{break-after:avoid}.bar{print-color-adjust:exact}}
)css";

}  // namespace automodel::report
