"""The colours of drawings and reports, light and dark."""

PALETTE = """
:root{--paper:#fafafa;--panel:#fff;--back:#f4f4f5;--line:#e4e4e7;--edge:#d4d4d8;--arrow:#a1a1aa;--ink:#18181b;
--soft:#63636b;--accent:#4f46e5;--accent-back:#eef2ff;--ok:#15803d;--ok-back:#f0fdf4;--run:#2563eb;--run-back:#eff6ff;
--wait:#b45309;--wait-back:#fffbeb;--bad:#dc2626;--bad-back:#fef2f2}
@media (prefers-color-scheme:dark){:root{--paper:#0b0b0f;--panel:#131318;--back:#1c1c23;--line:#26262e;--edge:#3a3a45;
--arrow:#71717a;--ink:#f4f4f5;--soft:#a1a1aa;--accent:#818cf8;--accent-back:#1e1b3a;--ok:#4ade80;--ok-back:#0f2417;
--run:#60a5fa;--run-back:#10203a;--wait:#fbbf24;--wait-back:#2a1f08;--bad:#f87171;--bad-back:#2c1214}}
""".replace("\n", "")
