// Spans of time as an address names them: `within=7d`.

/** Their words, and their seconds. @type {Record<string, [string, number]>} */
export const WITHIN = {
  "1h": ["in the last hour", 3600],
  "24h": ["in the last 24 hours", 86400],
  "7d": ["in the last 7 days", 604800],
  "30d": ["in the last 30 days", 2592000],
};

/** When a span began: it ends now, to the minute, so that it is not another one each second. @param {string | undefined} within */
export const sinceOf = (within) =>
  within && WITHIN[within]
    ? new Date(Math.floor(Date.now() / 60000) * 60000 - WITHIN[within][1] * 1000).toISOString()
    : undefined;
