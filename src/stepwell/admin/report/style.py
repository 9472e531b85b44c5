"""How a report looks: calm, dense, whole on a narrow screen, light and dark."""

from stepwell.viz.palette import PALETTE

STYLE = (
    PALETTE
    + """
:root{color-scheme:light dark}*{box-sizing:border-box}
body{margin:0;font:14px/1.5 ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:var(--ink);
background:var(--paper);overflow-wrap:anywhere}
main{max-width:68rem;margin:0 auto;padding:1.2rem 1.4rem 4rem}
h1{font-size:1.05rem;margin:0;font-weight:600}h1 span{color:var(--soft);font-weight:400}
h2{font-size:.78rem;letter-spacing:.05em;text-transform:uppercase;color:var(--soft);margin:2rem 0 .5rem;font-weight:600}
h3{font-size:.95rem;margin:0 0 .2rem}p{margin:.3rem 0}
header{display:flex;flex-wrap:wrap;gap:.5rem .8rem;align-items:center}
.lead{font-size:1.15rem;margin:.8rem 0 0}.soft{color:var(--soft)}.small{font-size:.85em}
.pill{display:inline-block;font-weight:500;font-size:.85rem;padding:.1rem .65rem;border-radius:99px}
.queued,.stalled{color:var(--wait);background:var(--wait-back)}.completed{color:var(--ok);background:var(--ok-back)}.running{color:var(--run);background:var(--run-back)}
.waiting,.sleeping{color:var(--wait);background:var(--wait-back)}.failed{color:var(--bad);background:var(--bad-back)}
.cancelled{color:var(--soft);background:var(--back)}
.card{background:var(--panel);border:1px solid var(--line);border-radius:9px;padding:.7rem .9rem;margin:.5rem 0}
p+.card{margin-top:1rem}.card>:first-child{margin-top:0}.card>:last-child{margin-bottom:0}
.bad{border-color:var(--bad)}.bad .what{color:var(--bad);font-weight:600}.wait{border-color:var(--wait)}
.two{display:grid;grid-template-columns:1fr 1fr;gap:0 1rem}.two>section{min-width:0}
dl.facts{display:grid;grid-template-columns:max-content 1fr;gap:.1rem 1rem;margin:.6rem 0 0;font-size:.9rem}
dl.fields{display:grid;grid-template-columns:minmax(3rem,max-content) minmax(0,1fr);gap:.1rem .8rem;margin:.1rem 0}
dt{color:var(--soft)}dd{margin:0;min-width:0}
code,pre{font:12px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
pre{white-space:pre-wrap;background:var(--back);border-radius:7px;padding:.6rem;margin:.4rem 0;overflow-wrap:anywhere}
.text{white-space:pre-wrap}.kind{color:var(--accent);font-size:.85em}
summary{cursor:pointer}details{margin:.15rem 0}
.graph{overflow-x:auto;background:var(--paper);border:1px solid var(--line);border-radius:9px;text-align:center}
.graph svg{max-width:100%;height:auto;min-width:calc(var(--wide)*.7)}
.times{display:grid;grid-template-columns:minmax(6rem,max-content) minmax(0,1fr);gap:.2rem .8rem;align-items:center}
.times>b{font-weight:500;font-size:.85rem;text-align:right;max-width:14rem}
.track{position:relative;height:1.15rem;background:var(--back);border-radius:4px;overflow:hidden}
.track i{position:absolute;top:0;bottom:0;min-width:3px}
.track .ran{background:var(--ok);opacity:.8;border-radius:3px}.track .failed{background:var(--bad);border-radius:3px}
.track .retried,.track .lost{opacity:.7;
background:repeating-linear-gradient(45deg,var(--bad) 0 3px,transparent 3px 6px)}
.track .gap{background:repeating-linear-gradient(90deg,var(--edge) 0 1px,transparent 1px 5px);opacity:.7}
.axis{grid-column:2;display:flex;justify-content:space-between;gap:1rem;font-size:.8rem;color:var(--soft)}
.commit{display:grid;grid-template-columns:4.2rem minmax(0,1fr);gap:0 .9rem}
.commit>aside{text-align:right;color:var(--soft);font-size:.85rem;padding-top:.75rem}
.commit>aside b{color:var(--ink);font-size:1rem}
.chosen>.card{border-color:var(--accent);box-shadow:0 0 0 1px var(--accent)}
.call{margin:.35rem 0}.call>b{font-weight:600}
.sent{border-left:2px solid var(--edge);margin:.3rem 0;padding:.05rem 0 .05rem .7rem}
.sent.output{border-color:var(--ok)}.sent.asked{border-color:var(--wait)}.sent.answer{border-color:var(--accent)}
.talk{display:flex;flex-direction:column;gap:.35rem;margin:.4rem 0}
.says{border-radius:9px;padding:.35rem .7rem;background:var(--back);max-width:92%;align-self:flex-start}
.says b{display:block;font-size:.78rem;color:var(--soft);font-weight:500}
.says.assistant{background:var(--accent-back);align-self:flex-end}
.steps{display:flex;flex-direction:column;align-items:flex-start;gap:.35rem;margin:.4rem 0}
.steps>.says{background:none;border:1px solid var(--line);font-size:.85rem;padding:.15rem .6rem}
.talk>.steps{align-items:flex-end;align-self:stretch;margin:0}.talk>.steps>.says{align-self:flex-end}
@media (max-width:640px){main{padding:.9rem .8rem 3rem}.two{display:block}.commit{display:block}
.commit>aside{display:flex;gap:.6rem;align-items:baseline;padding:.8rem 0 0}.times{display:block}
.times>b{display:block;text-align:left;margin-top:.4rem}dl.facts,dl.fields{display:block}dd{margin-bottom:.25rem}
.axis{flex-wrap:wrap;margin-top:.3rem}}
@media print{.card,.graph{break-inside:avoid}}
""".replace("\n", "")
)
